"""`./glm53 logs --stats [--tail N] [--no-follow] [FILE|-]`: one readable line per statistics update of the engine.

Without --stats this is docker compose logs.
"""

from __future__ import annotations

import argparse
import io
import selectors
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

from core.refusal import Refusal
from launcher.enginestats import Merger, readable
from launcher.verbs import compose

# vllm.log, or vllm-head.log / vllm-worker.log with ROLE set: the one written last.
FIND = 'f=$(ls -t /logs/vllm*.log 2>/dev/null | head -n 1); [ -n "$f" ] || exit 3; exec tail -n "$1" $2 "$f"'
NO_LOG = 3
# An update's two lines are written together; half a second later the second one is not coming.
SECOND_LINE_S = 0.5
HINT_S = 15.0
HINT = "no update yet: an idle engine writes none, and only the head's engine writes them (./glm53 watch names it)"


def run(arguments: list[str]) -> int:
    """Exit status of docker, or 0 at the end of a file."""
    if "--stats" not in arguments:
        return compose.run(["logs", *arguments])
    parser = argparse.ArgumentParser(prog="glm53 logs", description="One line per statistics update of the engine.")
    parser.add_argument("--stats", action="store_true", required=True)
    parser.add_argument("--tail", type=int, default=2000, metavar="N", help="lines of the log to begin with")
    parser.add_argument("-f", "--follow", action="store_true", help="go on (the default for the container's log)")
    parser.add_argument("--no-follow", action="store_true", help="end at the end of the log")
    parser.add_argument("file", nargs="?", help="a log file, or - for standard input; unset: the container's log")
    options = parser.parse_args(arguments)
    if options.file:
        return _file(options.file)
    return _container(options.tail, follow=not options.no_follow)


def _file(name: str) -> int:
    if name == "-":
        _print_all(sys.stdin)
        return 0
    path = Path(name)
    if not path.is_file():
        raise Refusal("logs --stats", f"{name}: no such file", "a log of vLLM", "./glm53 logs --stats /path/vllm.log")
    with path.open(errors="replace") as lines:
        _print_all(lines)
    return 0


def _print_all(lines: IO[str]) -> None:
    for line in readable(lines):
        print(line)


def _container(tail: int, *, follow: bool) -> int:
    command = ["docker", "exec", "glm53", "sh", "-c", FIND, "sh", str(tail), "-F" if follow else ""]
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
    except FileNotFoundError:
        raise Refusal(
            "Docker", "no docker on PATH", "Docker Engine", "./glm53 logs --stats FILE reads a file"
        ) from None
    try:
        _follow(process)
    except KeyboardInterrupt:
        process.terminate()
    status = process.wait()
    if status == NO_LOG:
        print("glm53: no engine log yet: the engine has not been launched (./glm53 watch)", file=sys.stderr)
    return 0 if status < 0 else status


def _follow(process: subprocess.Popen[bytes]) -> None:
    """Print updates as they come, each as soon as its second line can no longer follow."""
    assert process.stdout is not None
    merger, rest, printed, started = Merger(), b"", 0, time.monotonic()
    hinted = False
    raw = process.stdout
    assert isinstance(raw, io.BufferedReader)
    with selectors.DefaultSelector() as selector:
        selector.register(raw, selectors.EVENT_READ)
        held_since = started
        while True:
            ready = selector.select(timeout=SECOND_LINE_S)
            data = raw.read1(65536) if ready else None
            if data == b"":
                break
            *lines, rest = (rest + (data or b"")).split(b"\n")
            out = [done for line in lines for done in merger.feed(line.decode(errors="replace"))]
            now = time.monotonic()
            held_since = now if merger.held is None or out else held_since
            if merger.held is not None and now - held_since >= SECOND_LINE_S:
                out += merger.flush()
            for line in out:
                print(line, flush=True)
            printed += len(out)
            if not printed and not hinted and now - started > HINT_S:
                hinted = True
                print(f"glm53: {HINT}", file=sys.stderr, flush=True)
    for line in merger.flush():
        print(line, flush=True)
