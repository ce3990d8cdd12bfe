"""Who is head: exactly TP verified members, then the numerically lowest lan address, or as HEAD_HOST and ROLE say.

Pure: the same candidates give the same answer, or the same refusals, on every box.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from core.refusal import Refusal
from group.view import About, View, by_address


@dataclass(frozen=True)
class Candidate:
    """One box as the election sees it. `settings`: name -> text of the group-scope knobs, compared between boxes."""

    lan: str
    hostname: str
    tp: int
    topology: str = "auto"
    head_host: str = ""
    role: str = ""
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """`spark-1 (10.0.0.9)`, or the address alone."""
        return f"{self.hostname} ({self.lan})" if self.hostname else self.lan


@dataclass(frozen=True)
class Elected:
    """The outcome: lan addresses in rank order, the head first, and the rule that decided."""

    order: tuple[str, ...]
    rule: str
    line: str

    @property
    def head(self) -> str:
        """Lan address of rank 0."""
        return self.order[0]


def candidate(lan: str, about: About) -> Candidate:
    """What a member says of itself, as a candidate."""
    return Candidate(lan, about.hostname, about.tp, about.topology, about.head_host, about.role, dict(about.settings))


def of_view(view: View) -> Candidate:
    """A verified member as a candidate."""
    return candidate(view.lan, view.about)


def conflicts(boxes: Sequence[Candidate]) -> tuple[Refusal, ...]:
    """What no box may go on with, judged on the boxes seen so far (two are enough).

    Every refusal names box and setting, and both values where two differ.
    """
    boxes = sorted(boxes, key=lambda box: by_address(box.lan))
    found = [*_different_sizes(boxes)]
    if not found and len(boxes) > boxes[0].tp:
        found.append(_too_many(boxes))
    found += [*_heads(boxes), *_roles(boxes), *_different_settings(boxes)]
    return tuple(found)


def elect(boxes: Sequence[Candidate]) -> Elected | tuple[Refusal, ...] | None:
    """None while fewer than TP boxes are here; the outcome; or the refusals, alike on all boxes."""
    refusals = conflicts(boxes)
    if refusals:
        return refusals
    boxes = sorted(boxes, key=lambda box: by_address(box.lan))
    if len(boxes) < boxes[0].tp:
        return None
    head, rule = boxes[0], "the lowest lan address"
    wanted = boxes[0].head_host
    if wanted:
        named = [box for box in boxes if _is(box, wanted)]
        if not named:
            return (_head_of_nobody(boxes, wanted),)
        if len(named) > 1:
            return (_head_of_several(named, wanted),)
        head, rule = named[0], f"HEAD_HOST={wanted}"
    elif boxes[0].role:
        heads = [box for box in boxes if box.role == "head"]
        if not heads:
            return (_only_workers(boxes),)
        head, rule = heads[0], "ROLE=head there"
    order = (head.lan, *(box.lan for box in boxes if box.lan != head.lan))
    names = " ".join(f"{rank}={lan}" for rank, lan in enumerate(order))
    line = f"election: head {head.lan} ({rule}), TP={head.tp}, ranks {names}"
    return Elected(order, rule, line)


def _is(box: Candidate, wanted: str) -> bool:
    """HEAD_HOST names a lan address or a host name, with or without its domain."""
    short = wanted.split(".", 1)[0].lower()
    return wanted == box.lan or (not wanted[0].isdigit() and box.hostname.split(".", 1)[0].lower() == short)


def _groups(boxes: Sequence[Candidate], value: str) -> str:
    """`2 on a (..), b (..)` from (value, names) pairs; helper of the sentences below."""
    table: dict[str, list[str]] = {}
    for box in boxes:
        table.setdefault(str(getattr(box, value)) or "unset", []).append(box.name)
    return "; ".join(f"{text} on {', '.join(names)}" for text, names in table.items())


def _different_sizes(boxes: Sequence[Candidate]) -> list[Refusal]:
    if len({box.tp for box in boxes}) == 1:
        return []
    return [
        Refusal(
            "TP",
            _groups(boxes, "tp"),
            "the same TP on all boxes",
            "Set TP alike in compose/.env on every box, then up.",
        )
    ]


def _too_many(boxes: Sequence[Candidate]) -> Refusal:
    return Refusal(
        "TP",
        f"{len(boxes)} boxes: {', '.join(box.name for box in boxes)}",
        f"exactly TP={boxes[0].tp} boxes in the group",
        "Take the extra box down, give it another GROUP_NAME, or raise TP on all.",
    )


def _heads(boxes: Sequence[Candidate]) -> list[Refusal]:
    cure = "Set HEAD_HOST alike in compose/.env on every box, or on none."
    values = {box.head_host for box in boxes}
    if values == {""}:
        return []
    seen = _groups(boxes, "head_host")
    if "" in values:
        return [Refusal("HEAD_HOST", seen, "HEAD_HOST on all boxes or on none", cure)]
    named = {tuple(box.lan for box in boxes if _is(box, value)) for value in values}
    waiting = () in named and len(boxes) < boxes[0].tp  # two spellings may still turn out to be one box
    if len(values) > 1 and not waiting and (len(named) > 1 or () in named):
        return [Refusal("HEAD_HOST", f"two heads: {seen}", "one head", cure)]
    return []


def _roles(boxes: Sequence[Candidate]) -> list[Refusal]:
    roles = {box.role for box in boxes}
    if roles == {""}:
        return []
    found = []
    if "" in roles:
        found.append(
            Refusal(
                "ROLE",
                _groups(boxes, "role"),
                "ROLE on all boxes or on none",
                "Set ROLE=head on one box and ROLE=worker on the others, or unset it everywhere.",
            )
        )
    heads = [box for box in boxes if box.role == "head"]
    if len(heads) > 1:
        names = ", ".join(box.name for box in heads)
        found.append(
            Refusal("ROLE", f"two heads: head on {names}", "one head", "Set ROLE=worker on all boxes but one.")
        )
    for box in boxes:
        if box.head_host and (box.role == "head") != _is(box, box.head_host) and box.role:
            expected = "head" if _is(box, box.head_host) else "worker"
            found.append(
                Refusal(
                    "ROLE",
                    f"{box.role} on {box.name} while HEAD_HOST={box.head_host}",
                    f"ROLE={expected} there",
                    "Unset ROLE, or make it agree with HEAD_HOST.",
                )
            )
    return found


def _different_settings(boxes: Sequence[Candidate]) -> list[Refusal]:
    """Any other group-scope knob whose text differs. TP and HEAD_HOST have sentences of their own above."""
    found = []
    names = sorted({name for box in boxes for name in box.settings} - {"TP", "HEAD_HOST"})
    for name in names:
        table: dict[str, list[str]] = {}
        for box in boxes:
            table.setdefault(box.settings.get(name, "unset"), []).append(box.name)
        if len(table) > 1:
            seen = "; ".join(f"{text} on {', '.join(where)}" for text, where in table.items())
            found.append(
                Refusal(name, seen, "the same value on all boxes", f"Set {name} alike in compose/.env on every box.")
            )
    return found


def _head_of_nobody(boxes: Sequence[Candidate], wanted: str) -> Refusal:
    return Refusal(
        "HEAD_HOST",
        f"{wanted}, which is none of {', '.join(box.name for box in boxes)}",
        "the lan address or host name of one of the boxes",
        "Correct HEAD_HOST in compose/.env on every box, or unset it.",
    )


def _head_of_several(named: Sequence[Candidate], wanted: str) -> Refusal:
    return Refusal(
        "HEAD_HOST",
        f"{wanted}, the host name of {' and of '.join(box.name for box in named)}",
        "one head",
        "Set HEAD_HOST to the lan address of the head on every box, or give the boxes names of their own.",
    )


def _only_workers(boxes: Sequence[Candidate]) -> Refusal:
    return Refusal(
        "ROLE", f"worker on all {len(boxes)} boxes", "one head", "Set ROLE=head on one box, or unset ROLE everywhere."
    )


def two_instances(lan: str, instances: Sequence[str]) -> Refusal:
    """One address that answers now as one start of the kit, now as another: two boxes share it."""
    return Refusal(
        f"address {lan}",
        "two boxes answer there in turn (instances " + ", ".join(one[:8] for one in instances) + ")",
        "one box per address",
        "Give each box an address of its own (a clone kept a static one, or DHCP handed it out twice), then up.",
    )
