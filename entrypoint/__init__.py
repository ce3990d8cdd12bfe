"""The boot of one box: the twelve stages, in the order of entrypoint/__main__.py.
Pure parts (election, topology, sizing, serve) decide; supervise, door and discovery act.
"""
