"""The generation protocol: a pure state machine (machine.py) and the thin driver that does its actions.
Standard library only in the machine; docs/generations.md holds the table.
"""
