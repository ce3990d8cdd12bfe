"""One pure function a row: facts in, rows out; nothing is printed and nothing on the machine is changed."""

from preflight.checks.scene import Scene, Wanted
from preflight.checks.table import CHECKS, preflight, verdict
from preflight.checks.wanted import asked

__all__ = ["CHECKS", "Scene", "Wanted", "asked", "preflight", "verdict"]
