"""Is it right: questions with answers that can be checked, and probabilities that can be compared.
Each file is one check; gate/table.py lists them.
"""
