"""Overlays, one folder each: kernels and hooks mounted at run time, each can be turned off.
overlay.toml declares what it mounts, needs and hooks; compose files and order are generated.
"""
