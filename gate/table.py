"""Every check, in the order a gate runs them: cheap and telling first."""

from __future__ import annotations

from core.refusal import Refusal
from gate.check import Check
from gate.fair import newcomer, preemptions, short, three
from gate.right import (
    agent,
    count,
    datasets,
    determinism,
    history,
    image,
    limits,
    longreply,
    needle,
    nll,
    prefix,
    reasoning,
    scripts,
    tools,
)
from gate.speed import depth, measure, prefill, soak, sweep

CHECKS: tuple[Check, ...] = (
    limits.BUDGET,
    limits.CONTEXT,
    reasoning.CHECK,
    count.CHECK,
    nll.CHECK,
    image.CHECK,
    scripts.CHECK,
    tools.CHECK,
    history.CHECK,
    agent.CHECK,
    prefix.CHECK,
    determinism.CHECK,
    longreply.CHECK,
    needle.CHECK,
    short.CHECK,
    three.CHECK,
    newcomer.CHECK,
    measure.CHECK,
    prefill.CHECK,
    depth.CHECK,
    sweep.CHECK,
    soak.CHECK,
    datasets.GSM8K,
    datasets.HUMANEVAL,
    preemptions.CHECK,
)
SIZES = ("quick", "full")
ROOMS = ("right", "fair", "speed")


def chosen(names: list[str]) -> tuple[list[Check], str]:
    """The checks of `quick`, `full`, rooms and names, in table order, with the size they run at. Raises Refusal."""
    known = {check.name: check for check in CHECKS}
    size = "quick" if "quick" in names else "full"
    wanted: set[str] = set()
    for name in names:
        if name in SIZES:
            if len([other for other in names if other not in SIZES]) == 0:
                wanted |= {
                    check.name for check in CHECKS if (check.quick if name == "quick" else check.full) is not None
                }
        elif name in ROOMS:
            wanted |= {
                check.name
                for check in CHECKS
                if check.room == name and (check.quick if size == "quick" else check.full)
            }
        elif name in known:
            wanted.add(name)
        else:
            raise Refusal("gate", name, "one of " + ", ".join([*SIZES, *ROOMS, *known]), "./glm53 gate --help")
    return [check for check in CHECKS if check.name in wanted], size
