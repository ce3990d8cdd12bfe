"""What to collect when something breaks, and where it is kept.
Collects before anything is ended.
"""
