"""One file a verb; the table that names them is launcher/verbs/table.py.
A verb is a function of its argument list that returns an exit status.
"""
