"""One pure function a row: facts in, rows out, nothing printed.
Rows come warnings first; the last line of a report is the first thing to fix.
"""
