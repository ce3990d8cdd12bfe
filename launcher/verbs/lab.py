"""`./glm53 lab`: a whole cluster of real vLLM on this machine, to look at and to break.

No root, no Docker. The boxes are processes with a loopback address each; the model is tiny and random.
With --provider docker they are containers of the real image, started with the real compose file.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import signal
import sys
import time
from collections.abc import Callable

from core.lint import unknown
from core.refusal import Refusal, Refusals
from core.registry import registry
from core.units import show_seconds
from entrypoint.knobs import TP_SPELLINGS, ranks
from lab import state

QUESTION = "Say something."
READY_S = 300.0
LONGEST_S = 86400.0
MOST_BOXES = 8
# Names in --set that are no knobs but the engine's or its libraries' own: the kit hands them on.
ENGINE_PREFIXES = ("VLLM_", "NCCL_", "GLOO_", "TORCH", "OMP_")


def run(arguments: list[str]) -> int:
    """Exit status of the verb."""
    options = _parser().parse_args(arguments)
    state.check_name(options.name)
    action: Callable[[argparse.Namespace], int] = options.action
    return action(options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="glm53 lab", description="A cluster of real vLLM (CPU) on this machine.")
    parser.add_argument("--name", default="lab", help="more than one lab can be up at a time (default: lab)")
    verbs = parser.add_subparsers(required=True, metavar="VERB")

    up = verbs.add_parser("up", help="start boxes, wait until they serve, ask a question")
    up.add_argument("--boxes", type=int, default=None, help="2, 3, 4 or 6 (default: --tp, else 2); others with --tp")
    up.add_argument("--tp", default=None, help="tensor-parallel size (default: --boxes)")
    up.add_argument("--stagger", type=float, nargs="+", default=[], metavar="S", help="second at which each box starts")
    up.add_argument("--set", action="append", default=[], metavar="[BOX.]KNOB=VALUE", help="a knob of all or one box")
    up.add_argument("--padded", action="store_true", help="3 or 6 boxes: a model that must be padded for them, padded")
    up.add_argument("--timeout", type=float, default=READY_S, metavar="S", help="longest wait (default: 300)")
    up.add_argument("--no-wait", action="store_true", help="return when the boxes are started")
    up.add_argument("--keep", action="store_true", help="leave the boxes up when they do not come to serve")
    up.add_argument("--no-namespaces", action="store_true", help="plain processes, as where the kernel forbids more")
    up.add_argument(
        "--vllm", metavar="VERSION", default="", help="serve this release's tree instead of the installed one"
    )
    up.add_argument("--patched", action="store_true", help="with the image's patches on")
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
    logs.add_argument("-n", type=int, default=60, metavar="LINES", help="last lines (default: 60)")
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
    """Number of boxes and knobs of a command line.

    Raises what is wrong with it. A knob's bad value is left to the kit: a lab is there to try faults; the lab's own
    are TP, which says how many boxes, and the ports, which it must find free.
    """
    chosen = {}
    for text in options.set:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise Refusal("--set", text, "KNOB=VALUE or boxN.KNOB=VALUE", "./glm53 lab up --set SELF_TEST=0")
        chosen[name] = value
    if options.tp is not None:
        chosen["TP"] = options.tp
    for name in ("TP", "API_PORT", "STATUS_PORT"):
        if chosen.get(name):
            registry()[name].parse(chosen[name])
    count = options.boxes
    if count is None:
        count = ranks(chosen.get("TP") or "2")
    sizes = tuple(sorted({ranks(tp) for tp in TP_SPELLINGS}))
    if count not in (range(1, MOST_BOXES + 1) if "TP" in chosen else sizes):
        expected = f"one of {', '.join(map(str, sizes))}; with --tp, 1 to {MOST_BOXES}"
        raise Refusal("--boxes", str(count), expected, "./glm53 lab up --boxes 2")
    _names(chosen, count)
    _times(options, count)
    return count, {**_padded(options, chosen, count), **chosen}


def _padded(options: argparse.Namespace, chosen: dict[str, str], count: int) -> dict[str, str]:
    """Knobs of --padded; a user's --set wins over them."""
    if not options.padded:
        return {}
    if options.provider == "docker":
        cure = "./glm53 lab up --boxes 3 --padded"
        raise Refusal(
            "--padded", "--provider docker", "boxes that are processes: the model is mounted by no file", cure
        )
    from lab import padded

    return padded.knobs(ranks(chosen.get("TP") or str(count)), _tree(options))


def _names(chosen: dict[str, str], count: int) -> None:
    """Refuse what --set names and nothing would read."""
    boxes = [f"box{number}" for number in range(1, count + 1)]
    knobs = set()
    for name in chosen:
        box, dot, knob = name.rpartition(".")
        if dot and (box not in boxes or knob in ("API_PORT", "STATUS_PORT")):
            expected = f"KNOB, or boxN.KNOB with one of {', '.join(boxes)}; the ports are alike on all"
            raise Refusal("--set", name, expected, "./glm53 lab up --set box2.MAX_MODEL_LEN=512")
        knobs.add(knob)
    strange = unknown([name for name in knobs if not name.startswith(ENGINE_PREFIXES)], registry(), "--set")
    if strange:
        raise Refusals(strange)


def _times(options: argparse.Namespace, count: int) -> None:
    """Refuse seconds that no clock reaches."""
    for name, values in (("--stagger", options.stagger), ("--timeout", [options.timeout])):
        for value in values:
            if not (math.isfinite(value) and 0 <= value <= LONGEST_S):
                raise Refusal(name, f"{value:g}", f"seconds from 0 to {LONGEST_S:g}", "./glm53 lab up --help")
    if len(options.stagger) > count:
        seen = f"{len(options.stagger)} seconds for {count} boxes"
        raise Refusal("--stagger", seen, "at most one for each box", "./glm53 lab up --help")


def _tree(options: argparse.Namespace) -> str:
    """The folder of --vllm and --patched; "" for the engine's own vLLM."""
    from lab import vllm

    if not options.vllm and not options.patched:
        return ""
    if options.provider == "docker":
        asked = "--vllm" if options.vllm else "--patched"
        raise Refusal(asked, "with --provider docker", "boxes that are processes", "The image has its own, patched.")
    version = options.vllm or vllm.ENGINE
    return str(vllm.patched(version) if options.patched else vllm.tree(version))


def _up(options: argparse.Namespace) -> int:
    from lab import cluster, watch

    count, chosen = _settings(options)
    namespaces = False if options.no_namespaces else None
    lab, held = cluster.create(options.name, count, chosen, namespaces, options.provider, _tree(options))
    try:
        kind = "in namespaces of their own" if lab.namespaces else "as plain processes"
        kind = "as containers" if options.provider == "docker" else kind
        _say(f"lab '{lab.name}': {count} boxes {kind}, {lab.boxes[0].address} to {lab.boxes[-1].address}")
        if lab.tree:
            _say(f"vLLM from {lab.tree}")
        with held:
            began = time.monotonic()
            cluster.start_all(lab, held, options.stagger, _say)
        if options.no_wait:
            return 0
        took = watch.until_all_healthy(lab, options.timeout + max(options.stagger, default=0), _say, began)
        _say(f"all boxes serve after {show_seconds(took)}; asking through {lab.boxes[-1].name}: {QUESTION!r}")
        answer, seconds = watch.ask(lab, lab.boxes[-1], QUESTION, 60)
    except BaseException:  # whatever it was, nobody may be left with boxes that he did not get
        if not options.keep:
            _down_again(lab)
        raise
    _say(f"answer ({show_seconds(seconds)}, random weights): {answer!r}")
    first = lab.boxes[0]
    _say(f"\n  endpoint  http://{first.address}:{lab.api_port}/v1   (any box's address does)")
    _say(f"  page      http://{first.address}:{lab.status_port}/")
    name = "" if lab.name == state.DEFAULT_NAME else f"--name {lab.name} "
    _say(f"  next      ./glm53 lab {name}status | logs box1 | kill box2 | down")
    return 0


def _down_again(lab: state.Lab) -> None:
    from lab import cluster

    with contextlib.suppress(BrokenPipeError):
        print("glm53: taking the lab down again (--keep leaves it)", file=sys.stderr, flush=True)
    try:
        cluster.down(lab, grace_s=20)
    except KeyboardInterrupt:
        print("glm53: not all of it is down yet: ./glm53 lab down", file=sys.stderr, flush=True)
        raise


def _status(options: argparse.Namespace) -> int:
    from lab import watch
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
    from lab import cluster

    lab = state.load(options.name)
    for box in [lab.box(text) for text in options.box]:
        cluster.start(lab, box)
        _say(f"{box.name} started")
    return 0


def _stop(options: argparse.Namespace) -> int:
    from lab import cluster

    lab = state.load(options.name)
    boxes = [lab.box(text) for text in options.box]
    killed = cluster.stop(lab, boxes)
    for box in boxes:
        _say(f"{box.name} {'killed after its grace time' if box.name in killed else 'stopped'}")
    return 1 if killed else 0


def _running(lab: state.Lab, names: list[str]) -> list[state.Box]:
    """The boxes of these names; Refusal when one of them is down."""
    from lab.providers import of

    boxes = [lab.box(text) for text in names]
    for box in boxes:
        if not of(lab).kept(box).alive:
            raise Refusal("box", f"{box.name} is down", "a box that is up", f"./glm53 lab start {box.name}")
    return boxes


def _pause(options: argparse.Namespace) -> int:
    from lab.providers import of

    lab = state.load(options.name)
    process = of(lab)
    for box in _running(lab, options.box):
        _say(f"{box.name} paused ({process.pause(lab, box)} processes)")
    return 0


def _resume(options: argparse.Namespace) -> int:
    from lab.providers import of

    lab = state.load(options.name)
    process = of(lab)
    for box in _running(lab, options.box):
        _say(f"{box.name} goes on ({process.resume(lab, box)} processes)")
    return 0


def _logs(options: argparse.Namespace) -> int:
    from lab.providers import of

    lab = state.load(options.name)
    if options.n < 1:
        raise Refusal("-n", str(options.n), "1 or more lines", "./glm53 lab logs box1 -n 200")
    box = lab.box(options.box)
    kit = of(lab).kit_log(box)
    files = sorted((box.path / "logs").glob("vllm*.log")) if options.engine else [kit]
    files = [file for file in files if file.exists()]
    if not files:
        what = "engine" if options.engine else "kit"
        raise Refusal("lab logs", f"no {what} has run in {box.name} yet", f"a log of its {what}", "./glm53 lab status")
    for file in files:
        print("\n".join(file.read_text(errors="replace").splitlines()[-options.n :]))
    return 0


def _exec(options: argparse.Namespace) -> int:
    import subprocess

    from lab.providers import of

    lab = state.load(options.name)
    process = of(lab)
    words = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not words:
        raise Refusal("lab exec", "no command", "a command after the box", "./glm53 lab exec box1 ps aux")
    (box,) = _running(lab, [options.box])
    return subprocess.run(process.host(lab, box).argv(words), check=False).returncode


def _kill(options: argparse.Namespace) -> int:
    from lab import processes
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
    from lab import cluster

    lab = state.load(options.name)
    started = time.monotonic()
    killed = cluster.down(lab)
    words = f", {', '.join(killed)} killed after the grace time" if killed else ""
    _say(f"lab '{lab.name}' is down after {show_seconds(time.monotonic() - started)}{words}; nothing is left of it")
    return 0
