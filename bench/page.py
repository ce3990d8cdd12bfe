"""Is the page's sentence right, and do all pages agree? `python -m bench.page [--engine stand-in] [--pictures DIR]`.

A lab of four boxes goes through what can happen to it: boot from zero, a box killed, a box paused, a worker's engine
killed, a self-test that fails, a refusal. After each act every living box is asked for /status.json until all say one
sentence that fits. `agree_s`: from the first page that says it to the last. With --pictures Chromium takes the page
of one box (phone and desktop, light and dark, with and without JavaScript) and axe-core looks for faults.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import machine
from lab import cluster, processes, providers, state, vllm, watch
from lab.state import Box, Lab
from launcher.environments import python_of
from launcher.paths import ROOT, cache

BOXES = 4
AGREE_S = 5.0
LOOK_S = 0.1
SETTINGS = {"CANARY_S": "12", "LOST_S": "60", "ON_REFUSAL": "stay", "ENGINE_STOP_S": "5"}
LONG_S = {"stand-in": 90.0, "vllm": 420.0}
BROWSER = Path(__file__).parent / "browser" / "shoot.mjs"
SHOTS = (("desktop", 1280, 900), ("phone", 390, 844))
FAILING = """import sys; sys.path.insert(0, {root!r})
from lab import engine
good = engine.Api.do_POST
def bad(self):
    self.rfile.read(int(self.headers["Content-Length"])); self.send_error(500, "as the test wants")
engine.Api.do_POST = bad
sys.exit(engine.main(sys.argv))
"""


@dataclass
class Seen:
    """One situation: what all pages said, how long after the act, and what the browser found."""

    name: str
    sentence: str
    after_s: float
    agree_s: float
    axe: list[str] = field(default_factory=list)
    page: str = ""

    @property
    def good(self) -> bool:
        """Said alike in time, by the pages in the browser too, with no serious finding."""
        return self.agree_s <= AGREE_S and not self.axe


def sentences(lab: Lab, boxes: Sequence[Box]) -> list[str]:
    """What the pages of these boxes say now; "" where none answers."""
    return [str((watch.status(lab, box, 1.0) or {}).get("sentence", "")) for box in boxes]


def until(lab: Lab, boxes: Sequence[Box], fits: str, deadline_s: float) -> tuple[str, float, float]:
    """(sentence, seconds to the first page that says it, to the last) once all say one that matches `fits`."""
    began, first = time.monotonic(), None
    while True:
        said = sentences(lab, boxes)
        right = [bool(re.search(fits, one)) for one in said]
        now = time.monotonic() - began
        if any(right) and first is None:
            first = now
        if not any(right):
            first = None
        if all(right) and len(set(said)) == 1:
            return said[0], first or 0.0, now
        if now > deadline_s:
            raise SystemExit(f"not within {deadline_s:g} s: {fits!r}; the pages say {said}")
        time.sleep(LOOK_S)


class Camera:
    """Chromium, driven by bench/browser/shoot.mjs; pictures go to `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, "BROWSER_HOME": str(home())}
        self.process = subprocess.Popen(
            ["node", str(BROWSER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def shoot(self, **job: Any) -> dict[str, Any]:
        """One page; what the script says of it."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        found: dict[str, Any] = json.loads(self.process.stdout.readline())
        return found

    def take(self, name: str, url: str) -> tuple[str, list[str]]:
        """(sentence on the page, serious findings and errors) over phone and desktop, light and dark."""
        said, wrong = "", []
        for size, width, height in SHOTS:
            for dark in (False, True):
                file = str(self.folder / f"{name}-{size}-{'dark' if dark else 'light'}.png")
                found = self.shoot(url=url, file=file, width=width, height=height, dark=dark, axe=True, full=True)
                said = found.get("sentence", "")
                wrong += [f"{size}: {one}" for one in (*found.get("errors", ()), *found.get("foreign", ()))]
                wrong += [f"{size}: axe {one['id']}" for one in found.get("axe", ()) if one["impact"] in SERIOUS]
                wrong += [f"{size}: {found['error']}"] if "error" in found else []
                wrong += [f"{size}: {found['overflow']} px too wide"] if found.get("overflow", 0) > 0 else []
        plain = self.shoot(url=url, file=str(self.folder / f"{name}-no-script.png"), script=False, wait=100)
        wrong += [] if plain.get("status") == 200 else [f"without JavaScript: {plain}"]
        return said, wrong

    def close(self) -> None:
        """End the browser."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(20)


SERIOUS = ("serious", "critical")
SERVES = r"^Serving: glm53 on 4 boxes"


def home() -> Path:
    """Where the browser's packages are; installed from bench/browser/package.json when they are not."""
    folder = cache() / "browser"
    wanted = (BROWSER.parent / "package.json").read_text()
    if not (folder / "node_modules" / "axe-core").exists() or (folder / "package.json").read_text() != wanted:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "package.json").write_text(wanted)
        command = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--silent"]
        subprocess.run(command, cwd=folder, check=True, timeout=300)
    return folder


class Tour:
    """The situations, in order, on one lab."""

    def __init__(self, lab: Lab, held: Any, engine: str, camera: Camera | None) -> None:
        self.lab, self.held, self.camera, self.long_s = lab, held, camera, LONG_S[engine]
        self.made = providers.of(lab)
        self.seen: list[Seen] = []

    def see(self, name: str, boxes: Sequence[Box], fits: str, deadline_s: float = 0.0, picture: bool = True) -> None:
        """Wait for the sentence, keep it, take the picture of the last of these boxes."""
        sentence, first, last = until(self.lab, boxes, fits, deadline_s or self.long_s)
        found = Seen(name, sentence, round(last, 1), round(last - first, 1))
        if self.camera is not None and picture:
            url = f"http://{boxes[-1].address}:{self.lab.status_port}/"
            found.page, found.axe = self.camera.take(name.replace(" ", "-"), url)
        self.seen.append(found)
        print(f"{found.after_s:6.1f}s  agree {found.agree_s:.1f}s  {name}: {sentence}  {found.axe or ''}", flush=True)

    def start(self, *boxes: Box) -> None:
        """Start boxes."""
        for box in boxes:
            cluster.start(self.lab, box, self.held)


Act = Callable[["Tour"], None]


def boot(one: Tour) -> None:
    """From zero to serving; one box comes first."""
    first, *others = one.lab.boxes
    one.start(first)
    one.see("one box", [first], r"^Waiting: 1 of 4 boxes are here")
    one.start(*others)
    one.see("booting", one.lab.boxes, r"^Starting: \S+ \(\S+\) at “(Launch vLLM|Prove it)”")
    one.see("serving", one.lab.boxes, SERVES)


def killed(one: Tour) -> None:
    """A box has no power for a while."""
    one.start(*one.lab.boxes)
    until(one.lab, one.lab.boxes, SERVES, one.long_s)
    first, second, third, fourth = one.lab.boxes
    one.made.kill_all(one.lab, third)
    one.see("box killed", [first, second, fourth], r"box3 .*(is gone|no kit running|refuses connections)", 15)
    one.see("box away", [first, second, fourth], r"^Waiting: 3 of 4 boxes are here; \S*box3 ", 30, picture=False)
    one.start(third)
    one.see("box back", one.lab.boxes, SERVES, picture=False)


def paused(one: Tour) -> None:
    """A box stands still, engine and all."""
    one.start(*one.lab.boxes)
    until(one.lab, one.lab.boxes, SERVES, one.long_s)
    first, second, third, fourth = one.lab.boxes
    one.made.pause(one.lab, second)
    one.see("box paused", [first, third, fourth], r"box2 \(\S+\) is silent", 15)
    one.see("no token", [first, third, fourth], r"^(Restarting|Waiting): .*box2", 60, picture=False)
    one.made.resume(one.lab, second)
    one.see("box goes on", one.lab.boxes, SERVES, picture=False)


def engine(one: Tour) -> None:
    """A worker's engine is killed."""
    one.start(*one.lab.boxes)
    until(one.lab, one.lab.boxes, SERVES, one.long_s)
    processes.send(one.made.find(one.lab, one.lab.boxes[3], "engine"), signal.SIGKILL)
    one.see("worker's engine killed", one.lab.boxes, r"the engine of \S*box4 \(\S+\) ended", 15)
    one.see("serving again", one.lab.boxes, SERVES, picture=False)


def refusal(one: Tour) -> None:
    """One box of four has another MAX_MODEL_LEN."""
    one.start(*one.lab.boxes)
    one.see("refusal", one.lab.boxes, r"^Refused: .*MAX_MODEL_LEN", 60)


def untrue(one: Tour) -> None:
    """An engine that serves and does not answer the self-test's questions."""
    one.start(*one.lab.boxes)
    one.see("self-test failed", one.lab.boxes, r"^Not healthy: the self-test failed")


@contextmanager
def a_lab(
    name: str, engine: str, chosen: dict[str, str], failing: bool = False, boxes: int = BOXES
) -> Iterator[tuple[Lab, Any]]:
    """A lab that is described and held, nothing started; taken down at the end."""
    settings = SETTINGS | chosen
    state.home().mkdir(exist_ok=True)
    script = state.home() / f"{name}-engine"
    if engine == "stand-in" or failing:
        python, root = python_of(vllm.environment()), str(ROOT)
        program = f"{ROOT}/lab/engine.py"
        if failing:
            (state.home() / f"{name}-engine.py").write_text(FAILING.format(root=root))
            program = str(state.home() / f"{name}-engine.py")
        script.write_text(f'#!/bin/sh\nexec "{python}" "{program}" "$@"\n')
        script.chmod(0o755)
        settings |= {"ENGINE_PYTHON": str(script)}
    lab, held = cluster.create(name, boxes, settings)
    try:
        yield lab, held
    finally:
        cluster.down(lab, 20)
        held.close()
        for file in state.home().glob(f"{name}-engine*"):
            file.unlink()


# Name -> what happens, knobs, and whether the engine fails every question.
TOURS: dict[str, tuple[Act, dict[str, str], bool]] = {
    "boot": (boot, {}, False),
    "killed": (killed, {}, False),
    "paused": (paused, {}, False),
    "engine": (engine, {}, False),
    "refusal": (refusal, {"box2.MAX_MODEL_LEN": "512"}, False),
    "untrue": (untrue, {}, True),
}


def run(kind: str, pictures: Path | None, only: Sequence[str] = ()) -> list[Seen]:
    """All tours; one list of what was seen."""
    camera = Camera(pictures) if pictures is not None else None
    seen: list[Seen] = []
    try:
        for name, (act, chosen, failing) in TOURS.items():
            if only and name not in only:
                continue
            with a_lab(f"page-{name}", kind, chosen, failing) as (lab, held):
                providers.of(lab).prepare(lab)
                one = Tour(lab, held, kind, camera)
                act(one)
                seen += one.seen
    finally:
        if camera is not None:
            camera.close()
    return seen


def main() -> int:
    """Run, print, and write bench/results/page-<engine>.json when everything was tried."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=sorted(LONG_S), default="stand-in")
    parser.add_argument("--pictures", type=Path)
    parser.add_argument("--only", nargs="*", choices=sorted(TOURS), default=())
    options = parser.parse_args()
    seen = run(options.engine, options.pictures, options.only)
    if not options.only:
        what = "seconds from the act until all pages say one right sentence; agree_s: from the first page to the last"
        rows = [
            {
                "situation": one.name,
                "sentence": re.sub(r"[\w-]*-box(\d)", r"box\1", one.sentence),
                "after_s": one.after_s,
                "agree_s": one.agree_s,
                "findings": one.axe,
            }
            for one in seen
        ]
        load = round(os.getloadavg()[0], 1)
        name = f"page-{options.engine}"
        machine.write(name, {"what": what, "engine": options.engine, "boxes": BOXES, "load": load, "seen": rows})
    return 0 if all(one.good for one in seen) else 1


if __name__ == "__main__":
    sys.exit(main())
