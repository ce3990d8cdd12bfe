"""The twelve stages, one function each, in the order of entrypoint/__main__.py.
A stage reads and writes the Boot, tells the board its step, and returns when its part is done.
"""
