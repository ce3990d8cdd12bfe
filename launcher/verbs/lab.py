"""`./glm53 lab`: a whole cluster of real vLLM on this machine, to look at and to break.

No root, no Docker. The boxes are processes with a loopback address each; the model is tiny and random.
With --provider docker they are containers of the real image, started with the real compose file.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable

from core.refusal import Refusal, Refusals
from core.units import show_seconds

QUESTION = "Say something."
READY_S = 300.0


def run(arguments: list[str]) -> int:
    """Exit status of the verb."""
    options = _parser().parse_args(arguments)
    action: Callable[[argparse.Namespace], int] = options.action
    return action(options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="glm53 lab", description="A cluster of real vLLM (CPU) on this machine.")
    parser.add_argument("--name", default="lab", help="more than one lab can be up at a time (default: lab)")
    verbs = parser.add_subparsers(required=True, metavar="VERB")

    up = verbs.add_parser("up", help="start boxes, wait until they serve, ask a question")
    up.add_argument("--boxes", type=int, default=None, help="2, 3, 4 or 6 (default: --tp, else 2)")
    up.add_argument("--tp", default=None, help="tensor-parallel size (default: --boxes)")
    up.add_argument("--stagger", type=float, nargs="+", default=[], metavar="S", help="second at which each box starts")
    up.add_argument("--set", action="append", default=[], metavar="[BOX.]KNOB=VALUE", help="a knob of all or one box")
    up.add_argument("--timeout", type=float, default=READY_S, metavar="S", help="longest wait (default: 300)")
    up.add_argument("--no-wait", action="store_true", help="return when the boxes are started")
    up.add_argument("--keep", action="store_true", help="leave the boxes up when they do not come to serve")
    up.add_argument("--no-namespaces", action="store_true", help="plain processes, as where the kernel forbids more")
    up.add_argument("--provider", choices=("process", "docker"), default="process", help="docker: the real image")
    up.set_defaults(action=_up)

    verbs.add_parser("status", help="one line a box").set_defaults(action=_status)
    for name, action, text in (
        ("start", _start, "start boxes that are down"),
        ("stop", _stop, "stop boxes as Docker would: TERM, then KILL"),
        ("pause", _pause, "freeze all processes of boxes"),
        ("resume", _resume, "let frozen boxes go on"),
    ):
        verb = verbs.add_parser(name, help=text)
        verb.add_argument("box", nargs="+")
        verb.set_defaults(action=action)

    logs = verbs.add_parser("logs", help="what a box's kit (or its engine) wrote")
    logs.add_argument("box")
    logs.add_argument("--engine", action="store_true", help="vLLM's log instead of the kit's")
    logs.add_argument("-n", type=int, default=60, help="last lines (default: 60)")
    logs.set_defaults(action=_logs)

    execute = verbs.add_parser("exec", help="run a command in a box")
    execute.add_argument("box")
    execute.add_argument("command", nargs=argparse.REMAINDER)
    execute.set_defaults(action=_exec)

    kill = verbs.add_parser("kill", help="signal a box's kit, engine or worker; `--what box` is a power cut")
    kill.add_argument("box")
    kill.add_argument("--signal", default="KILL", help="TERM, KILL, STOP, CONT, ... (default: KILL)")
    kill.add_argument("--what", choices=("kit", "engine", "worker", "box"), default="kit")
    kill.set_defaults(action=_kill)

    down = verbs.add_parser("down", help="stop all boxes; leaves nothing behind")
    down.set_defaults(action=_down)
    return parser


def _say(text: str) -> None:
    print(text, flush=True)


def _settings(options: argparse.Namespace) -> tuple[int, dict[str, str]]:
    """Number of boxes and knobs of a command line."""
    chosen = {}
    for text in options.set:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise Refusal("--set", text, "KNOB=VALUE or boxN.KNOB=VALUE", "./glm53 lab up --set SELF_TEST=0")
        chosen[name] = value
    if options.tp is not None:
        chosen["TP"] = options.tp
    count = options.boxes
    if count is None:
        digits = "".join(character for character in chosen.get("TP", "") if character.isdigit())
        count = int(digits) if digits and 1 < int(digits) <= 6 else 2
    if not 1 <= count <= 8:
        raise Refusal("--boxes", str(count), "a number from 1 to 8", "./glm53 lab up --boxes 2")
    return count, chosen


def _up(options: argparse.Namespace) -> int:
    from lab import cluster, watch

    count, chosen = _settings(options)
    namespaces = False if options.no_namespaces else None
    lab, held = cluster.create(options.name, count, chosen, namespaces, options.provider)
    kind = "in namespaces of their own" if lab.namespaces else "as plain processes"
    kind = "as containers" if options.provider == "docker" else kind
    _say(f"lab '{lab.name}': {count} boxes {kind}, {lab.boxes[0].address} to {lab.boxes[-1].address}")
    try:
        with held:
            began = time.monotonic()
            cluster.start_all(lab, held, options.stagger, _say)
        if options.no_wait:
            return 0
        took = watch.until_all_healthy(lab, options.timeout + max(options.stagger, default=0), _say, began)
        _say(f"all boxes serve after {show_seconds(took)}; asking through {lab.boxes[-1].name}: {QUESTION!r}")
        answer, seconds = watch.ask(lab, lab.boxes[-1], QUESTION, 60)
    except (Refusal, Refusals, KeyboardInterrupt):
        if not options.keep:
            print("glm53: taking the lab down again (--keep leaves it)", file=sys.stderr, flush=True)
            cluster.down(lab, grace_s=20)
        raise
    _say(f"answer ({show_seconds(seconds)}, random weights): {answer!r}")
    first = lab.boxes[0]
    _say(f"\n  endpoint  http://{first.address}:{lab.api_port}/v1   (any box's address does)")
    _say(f"  page      http://{first.address}:{lab.status_port}/")
    _say("  next      ./glm53 lab status | logs box1 | kill box2 | down")
    return 0


def _status(options: argparse.Namespace) -> int:
    from lab import state, watch
    from lab.providers import of

    lab = state.load(options.name)
    process = of(lab)
    healthy = True
    for box in lab.boxes:
        line = watch.line(lab, box)
        again = process.kept(box).restarts
        healthy = healthy and line.healthy
        more = f"  started again {again}x" if again else ""
        _say(f"{box.name}  {box.address:<13} {'healthy' if line.healthy else '-':<8} {line.text}{more}")
    return 0 if healthy else 1


def _start(options: argparse.Namespace) -> int:
    from lab import cluster, state

    lab = state.load(options.name)
    for box in [lab.box(text) for text in options.box]:
        cluster.start(lab, box)
        _say(f"{box.name} started")
    return 0


def _stop(options: argparse.Namespace) -> int:
    from lab import cluster, state

    lab = state.load(options.name)
    boxes = [lab.box(text) for text in options.box]
    killed = cluster.stop(lab, boxes)
    for box in boxes:
        _say(f"{box.name} {'killed after its grace time' if box.name in killed else 'stopped'}")
    return 1 if killed else 0


def _pause(options: argparse.Namespace) -> int:
    from lab import state
    from lab.providers import of

    lab = state.load(options.name)
    process = of(lab)
    for box in [lab.box(text) for text in options.box]:
        _say(f"{box.name} paused ({process.pause(lab, box)} processes)")
    return 0


def _resume(options: argparse.Namespace) -> int:
    from lab import state
    from lab.providers import of

    lab = state.load(options.name)
    process = of(lab)
    for box in [lab.box(text) for text in options.box]:
        _say(f"{box.name} goes on ({process.resume(lab, box)} processes)")
    return 0


def _logs(options: argparse.Namespace) -> int:
    from lab import state
    from lab.providers import of

    lab = state.load(options.name)
    box = lab.box(options.box)
    kit = of(lab).kit_log(box)
    files = sorted((box.path / "logs").glob("vllm*.log")) if options.engine else [kit]
    for file in files:
        if file.exists():
            print("\n".join(file.read_text(errors="replace").splitlines()[-options.n :]))
    return 0


def _exec(options: argparse.Namespace) -> int:
    import subprocess

    from lab import state
    from lab.providers import of

    lab = state.load(options.name)
    process = of(lab)
    words = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not words:
        raise Refusal("lab exec", "no command", "a command after the box", "./glm53 lab exec box1 ps aux")
    return subprocess.run(process.host(lab, lab.box(options.box)).argv(words), check=False).returncode


def _kill(options: argparse.Namespace) -> int:
    from lab import processes, state
    from lab.providers import of

    lab = state.load(options.name)
    process = of(lab)
    box = lab.box(options.box)
    name = "SIG" + options.signal.upper().removeprefix("SIG")
    if name not in signal.Signals.__members__:
        raise Refusal("--signal", options.signal, "a signal's name", "./glm53 lab kill box2 --signal TERM")
    if options.what == "box" and name == "SIGKILL":
        process.kill_all(lab, box)
        _say(f"{box.name} has no power")
        return 0
    found = process.find(lab, box, options.what)
    if not found:
        raise Refusal("lab kill", f"no {options.what} runs in {box.name}", "one that runs", "./glm53 lab status")
    sent = processes.send(found, signal.Signals[name])
    _say(f"{name} to {sent} process{'' if sent == 1 else 'es'} of {box.name}: {found[0].title[:70]}")
    return 0


def _down(options: argparse.Namespace) -> int:
    from lab import cluster, state

    lab = state.load(options.name)
    started = time.monotonic()
    killed = cluster.down(lab)
    words = f", {', '.join(killed)} killed after the grace time" if killed else ""
    _say(f"lab '{lab.name}' is down after {show_seconds(time.monotonic() - started)}{words}; nothing is left of it")
    return 0
