"""Is the cluster healthy, and if not, why: one pure function from what a box knows to one sentence.

Every box knows the same of the others (their views), and nothing in the sentence depends on who says it or on a
running clock: so all pages say the same words.

Healthy is exactly: every rank of a generation alive, and a real answer within the last minute. A token needs every
rank, so an answer that came after a box fell silent proves that box's rank, and so does a step of a long prefill.
What is wrong beside that (an alarm of the kernel, a drafter that drafts nothing) changes the words, not the verdict.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Mood = Literal["good", "warn", "busy", "bad"]
Word = Literal["Serving", "Starting", "Restarting", "Waiting", "Refused", "Not healthy", "Stopping"]

QUIET_S = 4.5  # a box that has answered nothing for so long is named
SILENT_S = 10.0  # and its rank no longer counts as alive without a token
ANSWER_S = 60.0  # an answer within this time is what healthy means
STEP_S = 10.0  # a step that came back within this time is a long prefill at work, not silence
ADDRESS = re.compile(r"^\d{1,3}(\.\d{1,3}){3}\b")
GONE = re.compile(r"refuses connections|started again$")
SELF = "this box"


@dataclass(frozen=True)
class Box:
    """One box as this one knows it. Seconds are ages; None: never.

    name      host name and address, as people know it
    heard_s   since its last word; 0 for this box itself
    gone      its port refuses connections: the kit there is not running
    state     in the group protocol; "" while nothing is known of it
    stage     label of its boot's stage; step: what it does there
    refusals  one line each; unfit: the fault is its own
    ended     why its last generation ended, as it saw it; "" once it serves again; ended_s: since then
    alarms    what is wrong with it though it may serve
    """

    lan: str
    name: str
    heard_s: float = 0.0
    gone: bool = False
    state: str = ""
    stage: str = ""
    step: str = ""
    refusals: tuple[str, ...] = ()
    ended: str = ""
    ended_s: float = 0.0
    alarms: tuple[str, ...] = ()


@dataclass(frozen=True)
class Facts:
    """Everything the sentence is made of.

    own        lan address of the box that asks: only a refusal of its own, or being left out, depends on it
    tp         boxes that serve together; 0 before the knobs are read
    boxes      this box and all members, by lan address
    seats      lan addresses of the running generation in rank order, the head first; empty without one
    together   all seats were seen running it
    selftest   verdict of the head: pending, passed, failed, failed-as-expected, off; failed: its first bad line
    alarm      why the head is about to end the generation, "" while it is not
    answered_s, stepped_s   since the head's engine last gave a token, and since a step last came back
    window_s   the longest an idle engine goes without an answer by its own knobs, if that is more than a minute
    """

    tp: int
    model: str
    boxes: tuple[Box, ...]
    seats: tuple[str, ...] = ()
    together: bool = False
    selftest: str = "pending"
    failed: str = ""
    alarm: str = ""
    answered_s: float | None = None
    stepped_s: float | None = None
    compiling: str = ""
    running: float = 0
    window_s: float = ANSWER_S
    own: str = ""


@dataclass(frozen=True)
class Verdict:
    """`word` heads the sentence; `sentence` says the rest, without a time that runs."""

    healthy: bool
    mood: Mood
    word: Word
    sentence: str


def sentence(facts: Facts) -> str:
    """The one sentence at the top of every page."""
    verdict = judge(facts)
    return f"{verdict.word}: {verdict.sentence}"


def judge(facts: Facts) -> Verdict:
    """The first rule that has something to say."""
    for rule in (_refused, _ending, _engaged, _outside, _missing, _starting):
        verdict = rule(facts)
        if verdict is not None:
            return verdict
    raise AssertionError("unreachable: a box that is not engaged is starting")


def _refused(facts: Facts) -> Verdict | None:
    """A box with a fault of its own does not keep a complete group from serving: then only that box speaks of it."""
    said: dict[str, list[str]] = {}
    fit = [box for box in facts.boxes if not box.refusals and not _lost(box)]
    complete = bool(facts.seats) or (bool(facts.tp) and len(fit) >= facts.tp)
    concerned = [box for box in facts.boxes if box.lan in (*facts.seats, facts.own) or not complete]
    for box in concerned:
        if not _lost(box):
            for line in box.refusals:
                said.setdefault(line, []).append(box.name)
    if not said:
        return None
    line, names = next(iter(said.items()))
    who = names[0] if len(names) == 1 else "every box" if len(names) == len(facts.boxes) else ", ".join(names)
    more = f" ({len(said) - 1} more below)" if len(said) > 1 else ""
    return Verdict(False, "bad", "Refused", f"{who} refuses {line}{more}")


def _ending(facts: Facts) -> Verdict | None:
    """A generation that is being given up, somewhere."""
    leaving = [box.name for box in facts.boxes if box.state == "leaving" and not _lost(box)]
    if leaving:
        return Verdict(False, "busy", "Stopping", f"{_list(leaving)} was told to end")
    why = facts.alarm
    if not why and any(box.state == "stopping" for box in facts.boxes):
        why = cause(facts.boxes)
    return Verdict(False, "bad", "Restarting", why) if why else None


def cause(boxes: Sequence[Box]) -> str:
    """Why the last generation ended, as far as all that was said of it tells.

    A kit that is gone took its engine with it, and the other engines end when theirs does: so that hearsay comes
    first. Then what a box says of itself, the one whose generation ended first (the others only followed). Hearsay
    begins with an address.
    """
    said = sorted(((box.ended_s, box, box.ended) for box in boxes if box.ended), key=lambda one: -one[0])
    hearsay = [(box, text) for _, box, text in said if ADDRESS.match(text)]
    gone = next((text for _, text in hearsay if GONE.search(text)), "")
    if gone:
        return _named(gone, boxes)
    for _, box, text in said:
        if not ADDRESS.match(text):
            return text.replace(SELF, box.name, 1)
    return _named(hearsay[0][1], boxes) if hearsay else ""


def _named(text: str, boxes: Sequence[Box]) -> str:
    """Hearsay with the box's name instead of its bare address."""
    for box in boxes:
        if text.startswith(f"{box.lan} "):
            return box.name + text[len(box.lan) :]
    return text


def _engaged(facts: Facts) -> Verdict | None:
    """In a generation: launching, proving, serving."""
    if not facts.seats:
        return None
    by_lan = {box.lan: box for box in facts.boxes}
    seats = [by_lan.get(lan) or Box(lan, lan, heard_s=SILENT_S * 2) for lan in facts.seats]
    gone = [box.name for box in seats if box.gone]
    if gone:
        return Verdict(False, "bad", "Restarting", f"{_list(gone)} is gone: its kit refuses connections")
    if not facts.together:
        return _start(facts, seats)
    dead = [box for box in seats if box.heard_s > SILENT_S and not _proved_since(facts, box)]
    if dead:
        names = _list([box.name for box in dead])
        return Verdict(False, "bad", "Not healthy", f"{names} is silent, and no token since proves its rank alive")
    if facts.selftest == "pending":
        return _start(facts, seats)
    if facts.selftest == "failed":
        what = f" ({facts.failed})" if facts.failed else ""
        text = f"the self-test failed{what}; the API answers, but do not trust what it says"
        return Verdict(False, "bad", "Not healthy", text)
    if not _alive(facts):
        text = "every box is there, but the engine has answered nothing for more than a minute"
        return Verdict(False, "bad", "Not healthy", text)
    return _serving(facts, seats)


def _serving(facts: Facts, seats: Sequence[Box]) -> Verdict:
    remarks = []
    quiet = [box for box in seats if box.heard_s > QUIET_S]
    if quiet:
        proved = all(_proved_since(facts, box) for box in quiet)
        names = _list([box.name for box in quiet])
        remarks.append(f"{names} is silent on the LAN" + (", but its rank works" if proved else ""))
    for box in seats:
        remarks += [f"{box.name}: {text}" for text in box.alarms]
    if facts.compiling and facts.running:
        remarks.append("still compiling kernels inside requests")
    seated = {box.lan for box in seats}
    for box in facts.boxes:
        if box.lan not in seated and box.refusals and not _lost(box):
            remarks.append(f"{box.name} is not part of it and refuses {box.refusals[0]}")
    boxes = f"{len(seats)} boxes" if len(seats) != 1 else "one box"
    text = f"{facts.model} on {boxes}"
    if facts.selftest == "off":
        text += ", not self-tested (SELF_TEST=0)"
    elif facts.selftest == "failed-as-expected":
        text += ", a model of random weights"
    return Verdict(True, "warn" if remarks else "good", "Serving", "; ".join([text, *remarks]))


def _alive(facts: Facts) -> bool:
    answered = facts.answered_s is not None and facts.answered_s <= max(ANSWER_S, facts.window_s)
    stepping = facts.stepped_s is not None and facts.stepped_s <= STEP_S and facts.running > 0
    return answered or stepping


def _proved_since(facts: Facts, box: Box) -> bool:
    """A token or a step came after the box was last heard, so its rank worked then, and the proof is young."""
    ages = [age for age in (facts.answered_s, facts.stepped_s) if age is not None]
    return bool(ages) and min(ages) < box.heard_s - 1 and _alive(facts)


def _outside(facts: Facts) -> Verdict | None:
    """The others serve without this box."""
    running = [box for box in facts.boxes if box.state == "running" and box.lan != facts.own and not _lost(box)]
    if not facts.tp or len(running) < facts.tp:
        return None
    names = _list([box.name for box in running])
    return Verdict(False, "busy", "Waiting", f"this box is not part of the generation of {names}")


def _missing(facts: Facts) -> Verdict | None:
    """No generation: are the boxes there?"""
    if not facts.tp:
        return None
    here = [box for box in facts.boxes if not _lost(box) and box.state and not box.refusals]
    lost = [box for box in facts.boxes if _lost(box) or not box.state]
    again = cause([box for box in facts.boxes if not _lost(box)])
    before = f" (before: {again})" if again and not lost else ""
    if len(here) < facts.tp:
        away = [f"{box.name} {'has no kit running' if box.gone else 'does not answer'}" for box in lost]
        what = f"{len(here)} of {facts.tp} boxes are here"
        return Verdict(False, "bad" if lost else "busy", "Waiting", "; ".join([what, *away]) + before)
    if len(here) > facts.tp:
        names = _list([box.name for box in here])
        return Verdict(False, "bad", "Waiting", f"{len(here)} boxes are here for TP={facts.tp}: {names}")
    return None


def _starting(facts: Facts) -> Verdict:
    return _start(facts, facts.boxes)


def _start(facts: Facts, boxes: Sequence[Box]) -> Verdict:
    """The first box in rank (or address) order stands for all: it is or becomes the head."""
    first = boxes[0]
    step = f" – {first.step}" if first.step else ""
    again = cause([box for box in facts.boxes if not _lost(box)])
    before = f" (before: {again})" if again else ""
    return Verdict(False, "busy", "Starting", f"{first.name} at “{first.stage}”{step}{before}")


def _lost(box: Box) -> bool:
    return box.gone or box.heard_s > QUIET_S


def _list(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]
