"""Ways to make a box. Each provider is a module with the same functions, so that they compare side by side.
process: a box is a set of processes on this machine (a pid namespace where permitted). No root, no Docker.
"""
