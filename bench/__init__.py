"""What we measure, one script a question; results are JSON under bench/results.
Ratios are taken in one run; nothing here is a test.
"""
