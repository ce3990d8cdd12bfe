"""Development tools that reproduce reported faults against a server; not part of any gate and not in the image.
Each prints what it saw and ends with 1 when the fault is there.
"""
