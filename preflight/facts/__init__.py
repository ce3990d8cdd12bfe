"""The only reader of the machine: plain dataclasses from a root path (default `/`).
A recorded tree is a test.
"""
