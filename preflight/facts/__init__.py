"""The only reader of the machine: plain dataclasses from a root path (default `/`).
A recorded tree is a test.
"""

from preflight.facts.gather import gather, memory
from preflight.facts.types import BoxFacts, Interface, Memory

__all__ = ["BoxFacts", "Interface", "Memory", "gather", "memory"]
