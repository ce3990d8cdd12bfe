"""`./glm53 watch [--until serving] [--box HOST[:PORT]]`: the stages of all boxes, live, through any one of them.

Ends with the URL, the model's name and a curl line. Exit 0 when the group serves, 1 when it does not.
"""

from __future__ import annotations

import argparse
import http.client
import json
import math
import os
import shutil
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from core.log import one_line
from core.refusal import Refusal, Refusals
from core.settings import Settings
from launcher.paths import ROOT
from launcher.surroundings import survey
from launcher.watching import REFUSED_S, Seen, event, farewell, members, refusals, row, serving, stages, table

POLL_S = 1.0
ANSWER_S = 3.0
# The page answers from container start; a box without one after this long is not starting.
NO_PAGE_S = 60.0
TIMEOUT_S = 3600.0
ANYWHERE = ("", "0.0.0.0", "::")
# A proxy of the shell is for the outside, never for the boxes.
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def run(arguments: list[str]) -> int:
    """Exit status: 0 serving, 1 refused, unreachable or timed out."""
    parser = argparse.ArgumentParser(prog="glm53 watch", description="The stages of all boxes, live.")
    parser.add_argument("--until", choices=("serving",), help="end when the group serves, or when it cannot")
    parser.add_argument("--box", action="append", default=[], metavar="HOST[:PORT]", help="a box to begin with")
    parser.add_argument("--timeout", type=float, default=TIMEOUT_S, metavar="S", help="with --until: give up after S")
    options = parser.parse_args(arguments)
    if not 0 < options.timeout < math.inf:
        raise Refusal("--timeout", f"{options.timeout:g}", "seconds above 0", "Leave it out for an hour.")
    settings = _settings()
    default_port = settings.integer("STATUS_PORT") if settings else 8082
    bind = settings.text("STATUS_BIND") if settings else ""
    first = options.box or ["127.0.0.1" if bind in ANYWHERE else bind]
    key = bool(settings and (settings.text("API_KEY") or settings.text("API_KEY_FILE")))
    watch = Watch([_address(text, default_port) for text in first])
    try:
        head = watch.until(options.timeout) if options.until else watch.forever()
    except KeyboardInterrupt:
        head = serving(watch.boxes)
        print()
    if head is None:
        return 1
    print("\n".join(farewell(head, key)))
    return 0


@dataclass
class Watch:
    """Polls the boxes given and those they name, and shows what changed."""

    first: list[tuple[str, int]]
    boxes: list[Seen] = field(default_factory=list)
    shown: dict[str, str] = field(default_factory=dict)
    drawn: int = 0
    started: float = field(default_factory=time.monotonic)

    def forever(self) -> Seen | None:
        """Poll and show until interrupted; the curl line is printed once when the group first serves."""
        said = False
        while True:
            self.step()
            head = serving(self.boxes)
            if head is not None and not said:
                said = True
                self.say(farewell(head, key=False)[0])
            time.sleep(POLL_S)

    def until(self, timeout_s: float) -> Seen | None:
        """The head once the group serves; None when it is refused, unreachable or late, after saying so."""
        refused_since: float | None = None
        answered = self.started
        while True:
            self.step()
            now = time.monotonic()
            head = serving(self.boxes)
            if head is not None:
                return head
            lines = refusals(self.boxes)
            refused_since = (refused_since or now) if lines else None
            answered = now if any(seen.status for seen in self.boxes) else answered
            if refused_since is not None and now - refused_since >= REFUSED_S:
                return give_up("refused:", *lines)
            if now - answered >= NO_PAGE_S:
                asked = ", ".join(f"http://{host}:{port}" for host, port in self.first)
                return give_up(f"no page at {asked} for {NO_PAGE_S:.0f} s: is the container up? ./glm53 ps")
            if now - self.started >= timeout_s:
                return give_up(f"not serving after {timeout_s:.0f} s", *_stage_lists(self.boxes))
            time.sleep(POLL_S)

    def step(self) -> None:
        """Ask every known box and those they name, each once, at the same time; then show."""
        port = self.first[0][1]
        wanted = dict(self.first)
        wanted.update((lan, port) for seen in self.boxes for lan in members(seen) if lan not in wanted)
        answers: list[Seen] = []
        with ThreadPoolExecutor(max_workers=16) as pool:
            while wanted:
                answers += pool.map(lambda item: ask(*item), wanted.items())
                known = {seen.lan for seen in answers} | {next(iter(members(seen)), "") for seen in answers}
                wanted = {lan: port for seen in answers for lan in members(seen) if lan not in known}
        self.boxes = distinct(answers)
        self.show()

    def show(self) -> None:
        """Redraw on a terminal; elsewhere a line for each box whose stage, step or health changed."""
        if sys.stdout.isatty():
            lines = table(self.boxes, time.monotonic() - self.started)
            width = shutil.get_terminal_size().columns
            back = f"\x1b[{self.drawn}F\x1b[J" if self.drawn else ""
            print(back + "\n".join(line[: width - 1] for line in lines), flush=True)
            self.drawn = len(lines)
            return
        for seen in self.boxes:
            if self.shown.get(seen.lan) != event(seen):
                self.shown[seen.lan] = event(seen)
                print(f"{time.strftime('%H:%M:%S')} {row(seen)}", flush=True)

    def say(self, text: str) -> None:
        """A line that stays."""
        print(text, flush=True)
        self.drawn = 0


def give_up(*lines: str) -> Seen | None:
    """Say why the watch ends without serving: there is no head to return."""
    for line in lines:
        print(f"glm53: {line}", file=sys.stderr)
    return None


def ask(host: str, port: int) -> Seen:
    """One box's /status.json."""
    try:
        with DIRECT.open(f"http://{host}:{port}/status.json", timeout=ANSWER_S) as reply:
            status: Any = json.load(reply)
    except urllib.error.HTTPError as error:
        named = ": not a name of that box (STATUS_HOSTS); ask its address" if error.code == 421 else ""
        return Seen(host, None, f"HTTP {error.code}{named}")
    except (OSError, ValueError, RecursionError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        return Seen(host, None, str(getattr(reason, "strerror", None) or reason or type(error).__name__))
    if not isinstance(status, dict):
        return Seen(host, None, "no status in the answer")
    return Seen(host, _plain(status))


def _plain(value: Any) -> Any:
    """The same with every text on one line: what a stranger answers must not drive the terminal."""
    if isinstance(value, dict):
        return {one_line(str(name)): _plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    return one_line(value) if isinstance(value, str) else value


def distinct(answers: list[Seen]) -> list[Seen]:
    """One entry a box, under its lan address: 127.0.0.1 and the lan address of this box are the same page."""
    boxes: dict[str, Seen] = {}
    for seen in answers:
        lan = next(iter(members(seen)), seen.lan)
        if lan not in boxes or boxes[lan].status is None:
            boxes[lan] = Seen(lan, seen.status, seen.error)
    return [boxes[lan] for lan in sorted(boxes, key=_numeric)]


def _numeric(lan: str) -> tuple[int, ...]:
    parts = lan.split(".")
    return tuple(int(part) for part in parts) if all(part.isdigit() for part in parts) else (999,)


def _address(text: str, default_port: int) -> tuple[str, int]:
    host, colon, port = text.partition(":")
    if not host or (colon and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536)):
        raise Refusal("--box", text, "HOST or HOST:PORT", "./glm53 watch --box 192.168.1.21")
    return host, int(port) if port else default_port


def _settings() -> Settings | None:
    """compose/.env's ports; a bad value elsewhere in it must not keep one from watching."""
    from experimental.overlays import read_all

    try:
        return survey(ROOT, os.environ, read_all(ROOT / "experimental")).settings
    except (Refusal, Refusals):
        return None


def _stage_lists(boxes: list[Seen]) -> list[str]:
    return [line for seen in boxes if seen.status for line in (seen.lan, *stages(seen.status))]
