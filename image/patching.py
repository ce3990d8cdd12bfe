"""Patches as declared data (patch), and the engine that checks (judging), applies and removes them (writing).

An edit is an anchor that must match exactly once inside its scope, and the text that replaces it. What a tree holds
is read from its text alone: no marker, no record is left in it. Every patch is judged in memory before a byte is
written; writing is all or nothing; applying twice changes nothing; removing restores every byte.
"""

from image.judging import check, judge, places
from image.patch import Addition, Edit, Patch, Report, State, Variant, Verdict, Witness
from image.tree import Tree
from image.writing import changes, write

__all__ = [
    "Addition", "Edit", "Patch", "Report", "State", "Tree", "Variant", "Verdict", "Witness",
    "changes", "check", "judge", "places", "write",
]  # fmt: skip
