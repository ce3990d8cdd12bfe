"""`./glm53 doctor`: what is wrong with this box, and what to fix first. Looks only; changes nothing.

Runs on the host or in the container. Exit status: 0 nothing to fix, 1 warnings, 2 something that keeps it from serving.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from core.refusal import Refusal
from core.registry import registry
from core.row import Row, first_to_fix, warnings_first
from core.settings import Settings, resolve
from launcher.checkpoints import DRAFTER, MODEL, Checkpoint, Mounted, locate
from launcher.paths import ROOT
from launcher.surroundings import dotenv_file, merge, read_dotenv
from preflight.checks import Scene, Wanted, asked, preflight, verdict
from preflight.checks.deep import deep
from preflight.facts.survey import Survey, survey
from preflight.netplan import snippet
from preflight.recording import record, replayed

LIVE = Path("/")
INSIDE = Path("/.dockerenv")  # Docker puts it into every container
KIT = Path("/opt/glm53")  # where the image has this repository
SAMPLE_S = 1.0  # between two looks at the counters


def run(arguments: list[str]) -> int:
    """Exit status of the verb; a file that is no recording is refused."""
    options = _parser().parse_args(arguments)
    settings = _settings()
    with _root(options.replay) as root:
        wanted = _wanted(settings, root)
        disks = ("/", wanted.cache, wanted.model, wanted.logs)
        seen = survey(root, disks, os.environ if root == LIVE else {}, SAMPLE_S if root == LIVE else 0.0)
        if options.record:
            print(f"{record(seen, Path(options.record), root)} files in {options.record}")
            return 0
        rows = preflight(Scene(seen, wanted))
        if options.deep:
            rows = warnings_first((*rows, *deep(wanted, lambda line: print(line, file=sys.stderr))))
    print(json.dumps(_document(seen, rows), indent=1) if options.json else _text(seen, rows))
    first = first_to_fix(rows)
    return 0 if first is None else 1 if first.level == "WARN" else 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="glm53 doctor", description=__doc__)
    parser.add_argument("--json", action="store_true", help="rows as JSON")
    parser.add_argument("--deep", action="store_true", help="also read and hash every model file (minutes)")
    parser.add_argument("--replay", metavar="TAR", help="look at a recording instead of this box")
    parser.add_argument("--record", metavar="TAR", help="write an anonymised recording of this box")
    return parser


@contextmanager
def _root(replay: str | None) -> Iterator[Path]:
    if replay is None:
        yield LIVE
    else:
        with replayed(Path(replay)) as root:
            yield root


def _settings() -> Settings:
    knobs = registry()
    merged, sources = merge(read_dotenv(dotenv_file(ROOT), os.environ), os.environ, knobs)
    return resolve(knobs, merged, sources)


def _wanted(settings: Settings, root: Path) -> Wanted:
    wanted = asked(settings)
    if root != LIVE:
        return replace(wanted, template="")  # a recording holds none
    if INSIDE.exists():
        return wanted
    model, drafter = (_mounted(settings.text(one.knob), one) for one in (MODEL, DRAFTER))
    return replace(  # on the host: the compose file sets the container's limits and mounts these
        wanted,
        inside=False,
        model=str(model.host / model.inside),
        drafter=str(drafter.host / drafter.inside),
        cache=settings.text("CACHE_HOME"),
        logs="",
        template=_on_host(wanted.template, {MODEL.mounted: model.host, str(KIT): ROOT}),
    )


def _mounted(folder: str, checkpoint: Checkpoint) -> Mounted:
    """What `up` would mount; the folder itself where it would refuse, so that the rows say what is missing there."""
    try:
        return locate(Path(folder), checkpoint)
    except Refusal:
        return Mounted(Path(folder), "")


def _on_host(template: str, mounts: Mapping[str, Path]) -> str:
    """CHAT_TEMPLATE is a path in the container: where that file lies here, as far as the kit mounts it."""
    for inside, here in mounts.items():
        if template.startswith(f"{inside}/"):
            return str(here / template.removeprefix(f"{inside}/"))
    return template


def _document(seen: Survey, rows: tuple[Row, ...]) -> dict[str, object]:
    first = first_to_fix(rows)
    return {
        "hostname": seen.box.hostname,
        "rows": [row.as_dict() for row in rows],
        "first": None if first is None else first.as_dict(),
        "netplan": snippet(seen.devices, seen.box.interfaces) if seen.devices else "",
    }


def _text(seen: Survey, rows: tuple[Row, ...]) -> str:
    """Problems with their cures, then one line each for the rest, this box's netplan, and the first thing to fix."""
    lines = []
    width = max(len(row.name) for row in rows)
    for row in rows:
        lines.append(f"{row.level:<5} {row.name:<{width}}  {row.seen}")
        if row.level in ("FAIL", "WARN"):
            lines += [f"      expected: {row.expected}", *(f"      {line}" for line in row.cure.splitlines())]
            lines.append(f"      {row.link}")
    if seen.devices:
        plan = snippet(seen.devices, seen.box.interfaces)
        lines += ["", "netplan for this box's ConnectX netdevs (nothing was changed; see docs/host-setup.md):", plan]
    return "\n".join([*lines, "", verdict(rows)])
