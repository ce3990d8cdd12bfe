"""`python -m gate ...`: the command line of ./glm53 gate."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from client.access import api_key
from client.openai import Client
from client.reply import ClientError
from core.refusal import Refusal
from gate import report, runner
from gate.check import Check
from gate.conditions import Watch
from gate.progress import Progress
from gate.session import Session, out_folder
from gate.speed import compare, files
from gate.table import CHECKS, chosen

NOT_BEGUN = 100
MOST = 99
USAGE = """\
./glm53 gate quick|full                  all checks of that size
./glm53 gate NAME... [quick]             some checks, or a room: right, fair, speed
./glm53 gate speed run [quick]           rates by class of prompt; writes speed.json
./glm53 gate speed compare A B           two speed.json of the same series, paired
./glm53 gate report DIR                  write report.html of a folder again
./glm53 gate import FILE                 show a llama-benchy JSON result
./glm53 gate list                        every check with its bar
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="glm53 gate",
        usage=USAGE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Is it right, is it fast, is it fair. Exit status: failed checks; 100: not begun; 2: refused.",
        epilog="API key: --key-file, API_KEY_FILE or API_KEY. The same --out goes on where a run was stopped.",
    )
    parser.add_argument("what", nargs="+", help=argparse.SUPPRESS)
    add = parser.add_argument
    add("--url", default="http://127.0.0.1:8002", help="any box, or a router (http://127.0.0.1:8002)")
    add("--model", default="", help="served name; default: the first the server lists")
    add("--out", default="", help="folder for report.html, report.json and raw runs (gate-out/<time>)")
    add("--label", default="", help="a name for this setup in the report")
    add(
        "--series",
        default="glm53-gate-1",
        help="same series = same prompts: needed for compare, change it to get new ones",
    )
    add("--key-file", default=None, help="file that holds the API key")
    add("--nll-reference", type=Path, default=None, help="nll.json to compare with")
    add("--speed-reference", type=Path, default=None, help="speed.json that must not be undercut by over 2 %%")
    add("--data", type=Path, default=None, help="folder with gsm8k.jsonl, humaneval.jsonl")
    add("--engine-log", type=Path, default=None, help="the engine's log: tells compiles from serving")
    add("--status", default="", help="the kit's page, e.g. http://box:8082; default: the URL's host on 8082")
    add("--cold", action="append", default=[], metavar="REASON", help="mark the figures cold")
    add("--set", action="append", default=[], metavar="CHECK.NAME=JSON", help="another size for a check")
    add("--retry", type=float, default=120.0, metavar="S", help="how long 429 and 503 are tried again (120)")
    add("--timeout", type=float, default=900.0, metavar="S", help="longest silence of an answer (900)")
    add("--json", action="store_true", help="the results as JSON on stdout")
    return parser


def _overrides(texts: list[str]) -> dict[str, dict[str, Any]]:
    known = {check.name: check for check in CHECKS}
    out: dict[str, dict[str, Any]] = {}
    for text in texts:
        left, _, value = text.partition("=")
        check, _, name = left.partition(".")
        sizes: set[str] = set()
        for params in (known[check].quick, known[check].full, known[check].by_name) if check in known else ():
            sizes |= set(params or {})
        try:
            if name not in sizes:
                raise ValueError
            out.setdefault(check, {})[name] = json.loads(value)
        except ValueError:
            expected = f"{check}.NAME=JSON with NAME of {', '.join(sorted(sizes))}" if sizes else "CHECK.NAME=JSON"
            raise Refusal("--set", text, expected, "./glm53 gate list shows the sizes.") from None
    return out


def _status(options: argparse.Namespace, root: str) -> str | None:
    if options.status:
        return str(options.status)
    host = root.rsplit(":", 1)[0] if root.count(":") > 1 else root
    return f"{host}:8082".replace("https://", "http://")


async def _gate(options: argparse.Namespace, checks: list[Check], size: str) -> int:
    overrides = _overrides(options.set)
    for path in (options.nll_reference, options.speed_reference, options.data):
        if path is not None and not path.exists():
            raise Refusal("path", str(path), "a file or folder that exists", "Correct the option.")
    if options.speed_reference is not None:
        files.read(options.speed_reference)
    out = out_folder(options.out or time.strftime("gate-out/%Y%m%d-%H%M%S"))
    progress = Progress()
    key = api_key(file=options.key_file)
    async with Client(options.url, options.model, key=key, read_s=options.timeout, retry_s=options.retry) as client:
        watch = Watch(options.engine_log, _status(options, client.root), options.cold)
        session = Session(
            client,
            progress,
            out,
            options.series,
            options.data,
            options.nll_reference,
            options.speed_reference,
            options.label,
            watch,
        )
        await session.open()
        progress.say(
            f"gate: {len(checks)} checks ({size}) against {client.root}, model {client.model}; results in {out}"
        )
        results = await runner.run(session, checks, size, overrides)
    if options.json:
        print(json.dumps(report.read(out), indent=1))
    failed = sum(result.outcome.verdict == "fail" for result in results)
    progress.say(report.sentence([result.as_dict() for result in results]))
    progress.say(f"report: {out / 'report.html'}")
    return min(failed, MOST)


def _compare(names: list[str], as_json: bool) -> int:
    if len(names) != 2:
        raise Refusal(
            "gate speed compare", f"{len(names)} files", "two", "./glm53 gate speed compare A/speed.json B/speed.json"
        )
    paths = [Path(name) / "speed.json" if Path(name).is_dir() else Path(name) for name in names]
    rows = compare.pairs(*(files.read(path) for path in paths))
    if as_json:
        print(json.dumps([asdict(row) for row in rows], indent=1))
    else:
        print("\n".join(compare.table(rows)))
    return sum(row.verdict == "differs" and row.ratio < 1 - compare.TOLERATED for row in rows)


def _list() -> int:
    for check in CHECKS:
        where = "quick, full" if check.quick else "full" if check.full else "by name"
        print(f"{check.name:<12} {check.room:<6} {where:<12} {check.title}: {check.bar}")
        for size, params in (("quick", check.quick), ("full", check.full), ("by name", check.by_name)):
            if params:
                print(f"{'':<12} {size}: {json.dumps(params)}")
    return 0


def _import(names: list[str]) -> int:
    for name in names:
        for row in files.benchy(Path(name)):
            print(json.dumps(row))
    return 0


def _reports(names: list[str]) -> int:
    for name in names:
        report.write(Path(name), report.read(Path(name)))
    return 0


def main(arguments: list[str]) -> int:
    """Exit status of the gate."""
    options = _parser().parse_args(arguments)
    what: list[str] = options.what
    try:
        if what[:2] == ["speed", "compare"]:
            return _compare(what[2:], options.json)
        if what[0] == "list":
            return _list()
        if what[0] == "import":
            return _import(what[1:])
        if what[0] == "report":
            return _reports(what[1:])
        if what[:2] == ["speed", "run"]:
            check = next(check for check in CHECKS if check.name == "speed")
            return asyncio.run(_gate(options, [check], "quick" if "quick" in what else "full"))
        return asyncio.run(_gate(options, *chosen(what)))
    except Refusal as refusal:
        print(f"glm53: {refusal}", file=sys.stderr)
        return 2
    except ClientError as error:
        print(f"gate: {error.line}", file=sys.stderr)
        return NOT_BEGUN
    except KeyboardInterrupt:
        print("gate: interrupted; what was measured is kept, the same --out goes on from there", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
