"""What the user set, where: compose/.env and the shell become settings with a source each, before Docker is asked.

Gathers (reads compose/.env) and judges; changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from core import lint
from core.knob import Knob
from core.refusal import Refusal, Refusals
from core.registry import registry
from core.settings import Settings, Source, resolve
from experimental.overlays import Overlay, misset, variables
from launcher.dotenv import Entry, entries
from launcher.generate import MOUNTED
from launcher.remarks import remarks

# What would make Compose look at other files or another project than ./glm53 names.
REDIRECTS = ("COMPOSE_FILE", "COMPOSE_PROJECT_NAME", "COMPOSE_ENV_FILES", "COMPOSE_DISABLE_ENV_FILE")
# In the container these are fixed by a mount; LOG_DIR names the host's side of it.
FIXED = {name: target for name, target in MOUNTED.items() if name != "LOG_DIR"}


@dataclass(frozen=True)
class Surroundings:
    """`settings` as the kit will see them, `environ` for docker compose, `warnings` to print.

    `remarks` are what is odd in compose/.env: told before something starts, not by every `logs` and `ps`.
    `overlays` are the variables of overlays that somebody set.
    """

    settings: Settings
    environ: Mapping[str, str]
    warnings: tuple[str, ...]
    remarks: tuple[str, ...] = ()
    overlays: Mapping[str, str] = field(default_factory=dict)


def dotenv_file(root: Path) -> Path:
    """Where the overrides lie: beside the compose file, whatever directory ./glm53 is run from."""
    return root / "compose" / ".env"


def place_of(file: Path) -> str:
    """The file as messages name it: compose/.env."""
    return str(Path(file.parent.name) / file.name)


def read_entries(file: Path, shell: Mapping[str, str]) -> list[Entry]:
    """What the lines of `file` set; nothing when there is no such file. Raises Refusal."""
    if not file.exists():
        return []
    try:
        return entries(file.read_text(), shell, place_of(file))
    except (OSError, UnicodeDecodeError) as error:
        raise Refusal(str(file), type(error).__name__, "a text file that can be read", f"ls -l {file}") from None


def read_dotenv(file: Path, shell: Mapping[str, str]) -> dict[str, str]:
    """The names and values of `file`; none when there is no such file. Raises Refusal."""
    return {entry.name: entry.value for entry in read_entries(file, shell)}


def survey(
    root: Path, shell: Mapping[str, str], overlays: Sequence[Overlay] = (), dotenv: Path | None = None
) -> Surroundings:
    """Judge compose/.env and the shell: the knobs, and the variables that `overlays` read.

    Raises Refusals naming every bad value, unknown name and misspelt name at once.
    """
    file = dotenv or dotenv_file(root)
    lines = read_entries(file, shell)
    written = {entry.name: entry.value for entry in lines}
    knobs = registry()
    known = {*knobs, *variables(overlays)}
    of_overlays = {name: text for name in variables(overlays) if (text := shell.get(name) or written.get(name))}
    refusals = [*lint.unknown(written, known), *lint.misspelt(shell, known), *_fixed(written)]
    refusals += misset(overlays, of_overlays)
    merged, sources = merge(written, shell, knobs)
    try:
        settings = resolve(knobs, merged, sources)
    except Refusals as bad:
        raise Refusals((*refusals, *bad.refusals)) from None
    refusals += _host_paths(merged)
    if refusals:
        raise Refusals(tuple(refusals))
    environ = {name: text for name, text in shell.items() if name not in REDIRECTS and (text or name not in knobs)}
    passed = {name: source for name, source in sources.items() if knobs[name].scope != "launcher"}
    passed.update(dict.fromkeys(MOUNTED, "default"))  # the mounts' own paths, nobody's choice
    environ["GLM53_SOURCES"] = json.dumps(passed, separators=(",", ":"))
    warnings = (*misplaced(root, file), *doubled(written, shell, knobs))
    return Surroundings(settings, environ, warnings, remarks(lines, knobs, place_of(file)), of_overlays)


def merge(
    written: Mapping[str, str], shell: Mapping[str, str], knobs: Mapping[str, Knob]
) -> tuple[dict[str, str], dict[str, Source]]:
    """Set knobs and where each came from. The shell wins over .env; empty means unset in both."""
    merged: dict[str, str] = {}
    sources: dict[str, Source] = {}
    places: tuple[tuple[Mapping[str, str], Source], ...] = ((shell, "shell"), (written, ".env"))
    for name in knobs:
        for place, source in places:
            if place.get(name) and name not in merged:
                merged[name], sources[name] = place[name], source
    return merged, sources


def _fixed(written: Mapping[str, str]) -> list[Refusal]:
    """Knobs that a mount fixes: a value in .env would be silently ignored."""
    cures = {"CACHE_ROOT": "Set CACHE_HOME to the host's directory instead."}
    return [
        Refusal(name, written[name], f"nothing: it is {target} in the container", cures.get(name, f"Remove {name}."))
        for name, target in FIXED.items()
        if written.get(name)
    ]


def _host_paths(merged: Mapping[str, str]) -> list[Refusal]:
    """These name host paths here; a relative one would be taken for a volume's name."""
    return [
        Refusal(name, merged[name], "an absolute path of this box", f"Write {name}=/... in compose/.env.")
        for name in ("LOG_DIR", "API_KEY_FILE", "STATUS_TOKEN_FILE")
        if merged.get(name) and not merged[name].startswith("/")
    ]


def misplaced(root: Path, file: Path) -> list[str]:
    """A .env in the repository root, which nothing reads, with the command that puts it right."""
    stray = root / ".env"
    if not stray.exists() or stray.resolve() == file.resolve():
        return []
    if file.exists():
        return [f"{stray} is ignored: compose/.env is the one that is read. Merge them, then: rm {stray}"]
    return [f"{stray} is ignored: compose/.env is the one that is read. mv {stray} {dotenv_file(root)}"]


def doubled(written: Mapping[str, str], shell: Mapping[str, str], knobs: Mapping[str, Knob]) -> list[str]:
    """A line for each knob that shell and compose/.env set differently."""
    return [
        f"{name}: the shell's {_shown(knob, shell[name])} wins over {_shown(knob, written[name])} of compose/.env"
        for name, knob in knobs.items()
        if shell.get(name) and written.get(name) and shell[name] != written[name]
    ]


def _shown(knob: Knob, text: str) -> str:
    return "value" if knob.secret else text
