"""`./glm53 plan`: what would be launched, and whether it fits; touches no Docker, GPU or network.

Settings are those of compose/.env and the shell; --set and --tp win over both.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import model as facts
from core import lint
from core.refusal import Refusal, Refusals
from core.registry import registry
from core.row import Row
from core.settings import Settings, Source, resolve
from entrypoint.sizing import BoxMemory, packs, size
from entrypoint.sizing.document import VERSION, differences, document
from entrypoint.sizing.text import difference_text, plan_text
from experimental.overlays import Overlay, chosen, misset, read_all, variables
from launcher.checkpoints import DRAFTER, MODEL, Checkpoint, locate, unfit
from launcher.commandline import names_of
from launcher.dotenv import Entry
from launcher.paths import ROOT
from launcher.remarks import remarks
from launcher.surroundings import dotenv_file, doubled, merge, misplaced, read_entries


def run(arguments: list[str]) -> int:
    """Exit status: 0 for a plan, 1 when --diff finds a difference; refusals are raised."""
    options = _parser().parse_args(arguments)
    if options.diff:
        return _diff(Path(options.diff[0]), Path(options.diff[1]))
    plan = _plan(options)
    if options.json:
        print(json.dumps(plan, indent=1))
    else:
        sys.stdout.write(plan_text(plan, brief=options.brief))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="glm53 plan", description=__doc__)
    parser.add_argument("--tp", help="2, 3, 4, 6, RING3 or RING4 (as --set TP=...)")
    parser.add_argument("--box", action="append", default=[], metavar="FACTS.json", help="a box's facts; repeatable")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a knob; repeatable")
    parser.add_argument("--model", metavar="DIR", help="compare this checkpoint with model.toml")
    parser.add_argument("--stock", action="store_true", help="no overlays")
    parser.add_argument("--without", action="append", default=[], metavar="NAME", help="leave an overlay out")
    parser.add_argument("--with", action="append", default=[], metavar="NAME", dest="wanted", help="put one on")
    parser.add_argument("--brief", action="store_true", help="budget, numbers and rows only")
    parser.add_argument("--json", action="store_true", help="the plan as docs/plan.schema.json describes it")
    parser.add_argument("--diff", nargs=2, metavar=("A", "B"), help="compare two plans written with --json")
    return parser


def _plan(options: argparse.Namespace) -> dict[str, Any]:
    every = read_all(ROOT / "experimental")
    typed, lines = _typed(options), read_entries(dotenv_file(ROOT), os.environ)
    odd = _judged(typed, lines, every)
    environ = {**{entry.name: entry.value for entry in lines}, **os.environ, **typed}
    without, wanted = names_of(options.without), names_of(options.wanted)
    on = chosen(every, environ, without=without, wanted=wanted, stock=options.stock)
    settings = _settings(typed, lines, on)
    boxes = [_box(Path(name)) for name in options.box]
    rows = (*odd, *_repeated(settings, typed, lines, on, boxes), *_checkpoints(settings, options.model))
    return document(settings, boxes, [_overlay(overlay, environ) for overlay in on], rows)


def _typed(options: argparse.Namespace) -> dict[str, str]:
    """Names and values of --set and --tp. Raises Refusal or Refusals."""
    typed = dict(_pair(text) for text in options.set)
    if options.tp:
        typed["TP"] = options.tp
    return typed


def _settings(typed: Mapping[str, str], lines: Sequence[Entry], on: Sequence[Overlay]) -> Settings:
    knobs = registry()
    written = {entry.name: entry.value for entry in lines}
    merged, sources = merge(written, {**os.environ, **typed}, knobs)
    merged["GLM53_OVERLAYS"] = ",".join(overlay.name for overlay in on)
    if not on:  # as ./glm53 --stock does
        merged["ALLOW_STOCK"], sources["ALLOW_STOCK"] = "1", "shell"
    overlay: Source = "overlay"
    return resolve(knobs, merged, {**sources, "GLM53_OVERLAYS": overlay})


def _judged(typed: Mapping[str, str], lines: Sequence[Entry], overlays: Sequence[Overlay]) -> tuple[Row, ...]:
    """Rows about compose/.env and the shell. Raises Refusals for names that nothing reads, as `up` does."""
    known = {*registry(), *variables(overlays)}
    written = {entry.name: entry.value for entry in lines}
    strange = [
        *lint.unknown(typed, known, "--set"),
        *lint.unknown([entry.name for entry in lines], known),
        *lint.misspelt(os.environ, known),
        *misset(overlays, {**written, **os.environ, **typed}),
    ]
    if strange:
        raise Refusals(tuple(strange))
    told = (
        *misplaced(ROOT, dotenv_file(ROOT)),
        *remarks(lines, registry()),
        *doubled(written, {**os.environ, **typed}, registry()),
    )
    return tuple(Row("compose/.env", "WARN", text.removeprefix("compose/.env, ")) for text in told)


def _repeated(
    settings: Settings, typed: Mapping[str, str], lines: Sequence[Entry], on: Sequence[Overlay], boxes: list[BoxMemory]
) -> tuple[Row, ...]:
    """A row for what compose/.env sets to the very value that would be derived without it."""
    mine = {name: setting.value for name, setting in settings.table.items() if setting.source == ".env"}
    names = [overlay.name for overlay in on]
    try:
        derived = size(boxes, settings, names).values if mine else {}
        kept = [entry for entry in lines if entry.name not in derived]
        free = size(boxes, _settings(typed, kept, on), names).values if derived else {}
    except (Refusal, Refusals):
        return ()  # it does not fit, with these values or without them: told elsewhere
    same = [name for name, value in mine.items() if name in free and free[name].value == value]
    cure = "remove it: a copy wins over a better value of a later version"
    return tuple(Row("compose/.env", "WARN", f"{name} is what the kit derives itself", cure=cure) for name in same)


def _pair(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise Refusal("--set", text, "NAME=VALUE", "./glm53 plan --set KV_CACHE_MEMORY=20GiB")
    return name, value


def _box(path: Path) -> BoxMemory:
    """A box from its facts as JSON: those of preflight/facts, a member's /member.json, or just the two numbers."""
    seen = _read(path, "--box")
    inner = seen.get("facts") if isinstance(seen.get("facts"), dict) else seen
    memory = inner.get("memory") if isinstance(inner, dict) else None
    total = memory.get("total") if isinstance(memory, dict) else None
    if not isinstance(memory, dict) or not isinstance(total, int) or isinstance(total, bool) or total < 1:
        expected = '{"hostname": ..., "memory": {"total": BYTES, "available": BYTES}}'
        raise Refusal("--box", str(path), expected, f"Correct {path}.")
    available = memory.get("available")
    name = str(inner.get("hostname") or path.stem) if isinstance(inner, dict) else path.stem
    return BoxMemory(name, total, available if isinstance(available, int) else 0)


def _read(path: Path, option: str) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise Refusal(option, f"{path}: {error}", "a file with a JSON object", f"ls -l {path}") from None
    if not isinstance(value, dict):
        raise Refusal(option, f"{path}: {type(value).__name__}", "a JSON object", f"Correct {path}.")
    return value


def _overlay(overlay: Overlay, environ: Mapping[str, str]) -> dict[str, Any]:
    environment: Mapping[str, str] = dict(overlay.environment)
    if overlay.switch:
        environment = {overlay.switch: "1", **environment}
    return {
        "name": overlay.name,
        "summary": overlay.summary,
        "mounts": [{"source": mount.source, "target": mount.target} for mount in overlay.mounts],
        "environment": {name: environ.get(name) or value for name, value in environment.items()},
        "verified": list(overlay.verified),
        "cost": overlay.cost,
    }


def _checkpoints(settings: Settings, named: str | None) -> tuple[Row, ...]:
    """Rows about the real files, where they lie on this box: as `up` judges them, and beside model.toml."""
    if named and not Path(named).is_dir():
        raise Refusal("--model", named, "a checkpoint's directory", f"ls -l {named}")
    drafting = settings["SPEC_METHOD"] == "dflash" and not settings.flag("MTP")
    rows = list(_rows_of(Path(named or str(settings["MODEL_HOST_DIR"])), MODEL, settings))
    rows += _rows_of(Path(str(settings["DFLASH_HOST_DIR"])), DRAFTER, settings) if drafting else ()
    return tuple(rows)


def _rows_of(folder: Path, checkpoint: Checkpoint, settings: Settings) -> Iterator[Row]:
    if not folder.is_dir():
        return  # a plan may be made anywhere
    try:
        mounted = locate(folder, checkpoint)
    except Refusal as told:
        yield Row(told.setting, "FAIL", told.seen, told.expected, told.cure)
        return
    overlays = settings.text("GLM53_OVERLAYS").split(",")
    for refusal in unfit(mounted, checkpoint, str(settings["TP"]), overlays):
        yield Row(refusal.setting, "FAIL", refusal.seen, refusal.expected, refusal.cure)
    if checkpoint is MODEL:
        files = mounted.host / mounted.inside
        yield from facts.compare(facts.load(), files)
        yield from packs.rows(facts.load(), files)


def _diff(mine: Path, theirs: Path) -> int:
    changes = differences(_written(mine), _written(theirs))
    sys.stdout.write(difference_text(changes, (str(mine), str(theirs))))
    return 1 if changes else 0


def _written(path: Path) -> dict[str, Any]:
    plan = _read(path, "--diff")
    if plan.get("version") != VERSION or not isinstance(plan.get("knobs"), list):
        seen = f"{path}, version {plan['version']}" if "version" in plan else str(path)
        raise Refusal("--diff", seen, f"a plan of version {VERSION}", f"./glm53 plan --json > {path}")
    return plan
