"""What ./glm53 does not know goes to docker compose: compose/glm53.yaml, the overlays in order, then the user's -f.

Before a container starts everything a box needs is checked, so that a mistake costs a second and not a boot.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Collection, Mapping
from pathlib import Path

from core.refusal import Refusal, Refusals
from core.settings import Settings
from experimental.overlays import Overlay, chosen, read_all
from image.identity import IMAGE_ID
from launcher.checkpoints import DRAFTER, MODEL, locate, pack_warnings, unfit
from launcher.commandline import CommandLine, split
from launcher.generate import COMMON, COMPOSE, OVERLAYS
from launcher.host import Host, judge, judge_tools, look, look_at_tools, pull, running
from launcher.paths import ROOT
from launcher.surroundings import Surroundings, dotenv_file, survey
from launcher.verbs.table import VERBS

WHEN = Path("compose/when")
# Host paths that are mounted only where they exist: Docker would make an empty folder of a missing one.
# Files of this box with a secret: what mounts each.
SECRET_FILES = {"API_KEY_FILE": "api-key.yaml", "STATUS_TOKEN_FILE": "status-token.yaml"}
PRESENT = {"kmsg.yaml": Path("/dev/kmsg"), "journal.yaml": Path("/var/log/journal")}

# Verbs of ours that docker compose does not have: what stands before them would go to it.
OWN = frozenset(verb.name for verb in VERBS) - {"logs"}

# What docker itself needs of the shell when the settings are not usable.
KEPT = ("PATH", "HOME", "DOCKER_HOST", "DOCKER_CONFIG", "DOCKER_CONTEXT", "XDG_RUNTIME_DIR", "TERM", "USER")


def run(arguments: list[str]) -> int:
    """Exit status of docker compose; raises Refusals before Docker is asked to start anything."""
    line = split(arguments)
    if line.verb in OWN:
        cure = f"./glm53 {line.verb} --help lists those it takes."
        raise Refusal(line.verb, f"{arguments[0]} before it", "its options after it", cure)
    checked = line.starts or line.verb == "config"
    overlays = _overlays(checked, line.verb)
    dotenv = Path(line.dotenv) if line.dotenv else dotenv_file(ROOT)
    if line.dotenv and not dotenv.is_file():
        raise Refusal("--env-file", line.dotenv, "a file", f"ls -l {line.dotenv}")
    seen = _survey(line, overlays, dotenv)
    switches = seen.overlays if checked else {}
    on = chosen(overlays, switches, without=line.without, wanted=line.wanted, stock=line.stock) if overlays else ()
    if checked:
        refused([_not_generated(overlay) for overlay in on if not _file_of(overlay).is_file()])
    environ = {**seen.environ, **decided(on, seen)}
    image = str(seen.settings["IMAGE"])
    if line.starts:
        host = look(image, environ)
        environ.update(ready(seen.settings, host, image, environ, [overlay.name for overlay in on]))
        if not host.image:  # Compose would pull it too, but without its id: the next `up` would know it, and start anew
            environ[IMAGE_ID] = pull(image, environ)
    else:
        refused(judge_tools(look_at_tools(environ)))
    compose = [*compose_command(line, on, seen.settings, dotenv), *line.options]
    command = [*compose, line.verb, *line.rest]
    sys.stdout.flush()
    if not line.detached:  # docker compose takes our place: what is typed, Ctrl-C too, is its own from here on
        os.execvpe(command[0], command, environ)
    before = running(compose, environ)
    status = subprocess.run(command, env=environ, check=False).returncode
    if status == 0:
        adopted = before and before == running(compose, environ)
        what = "unchanged: the container that runs goes on." if adopted else "started."
        print(f"glm53: {what} Follow all boxes until they serve: ./glm53 watch --until serving")
    return status


def _overlays(checked: bool, verb: str) -> tuple[Overlay, ...]:
    """Every overlay; none where one is broken and `verb` starts nothing: a stack must still come down."""
    try:
        return read_all(ROOT / "experimental")
    except Refusal as broken:
        if checked:
            raise
        print(f"glm53: {broken} (not needed for {verb})", file=sys.stderr)
        return ()


def refused(refusals: list[Refusal]) -> None:
    """Raise them all at once, when there are any."""
    if refusals:
        raise Refusals(tuple(refusals))


def decided(on: tuple[Overlay, ...], seen: Surroundings) -> dict[str, str]:
    """Variables that the command line decides: which overlays are on, and whether none is meant."""
    sources = json.loads(seen.environ["GLM53_SOURCES"])
    environ = {"GLM53_OVERLAYS": ",".join(overlay.name for overlay in on)}
    if not on:  # --stock, or the last overlay left out: meant so
        environ["ALLOW_STOCK"] = "1"
        sources["ALLOW_STOCK"] = "shell"
    if on:
        sources["GLM53_OVERLAYS"] = "overlay"
    return {**environ, "GLM53_SOURCES": json.dumps(sources, separators=(",", ":"))}


def ready(
    settings: Settings, host: Host, image: str, environ: Mapping[str, str], overlays: Collection[str]
) -> dict[str, str]:
    """Variables that say where the checkpoints are mounted, and the image's id.

    Raises Refusals with everything that is missing.
    """
    refusals = judge(host, image)
    sources = json.loads(environ["GLM53_SOURCES"])
    found = {IMAGE_ID: host.image} if host.image else {}
    drafting = settings["SPEC_METHOD"] == "dflash" and not settings.flag("MTP")
    wanted = ((MODEL, "MODEL_DIR"), (DRAFTER, "DFLASH_MODEL")) if drafting else ((MODEL, "MODEL_DIR"),)
    for checkpoint, inside in wanted:
        try:
            mounted = locate(Path(str(settings[checkpoint.knob])), checkpoint)
        except Refusal as refusal:
            refusals.append(refusal)
            continue
        refusals += unfit(mounted, checkpoint, str(settings["TP"]), overlays)
        for warning in pack_warnings(mounted) if checkpoint is MODEL else ():
            print(f"glm53: {warning}", file=sys.stderr)
        found[checkpoint.knob] = str(mounted.host)
        if mounted.inside and not settings.is_set(inside):
            found[inside] = mounted.seen(checkpoint)
            sources[inside] = "derived"
    drafter = Path(str(settings[DRAFTER.knob]))
    if not drafting and not drafter.is_dir():
        found[DRAFTER.knob] = str(ROOT / "compose" / "none")
    for name in SECRET_FILES:
        file = settings.text(name)
        if file and not Path(file).is_file():
            refusals.append(Refusal(name, f"{file}: no such file", "a file with the secret", f"ls -l {file}"))
    refused(refusals)
    return {**found, "GLM53_SOURCES": json.dumps(sources, separators=(",", ":"))}


def compose_command(line: CommandLine, on: tuple[Overlay, ...], settings: Settings, dotenv: Path) -> list[str]:
    """`docker compose` with every file in order; later files win, so the user's come last."""
    files = [ROOT / COMPOSE]
    files += [ROOT / WHEN / name for name, path in PRESENT.items() if path.exists()]
    files += [ROOT / WHEN / file for name, file in SECRET_FILES.items() if settings.text(name)]
    if on:
        files += [ROOT / COMMON, *(file for file in map(_file_of, on) if file.is_file())]
    command = ["docker", "compose", "--env-file", str(dotenv) if dotenv.is_file() else os.devnull]
    if not {"-p", "--project-name"} & {word.partition("=")[0] for word in line.options}:
        command += ["-p", "glm53"]
    for file in (*map(str, files), *line.files):
        command += ["-f", file]
    return command


def _file_of(overlay: Overlay) -> Path:
    return ROOT / OVERLAYS / f"{overlay.name}.yaml"


def _not_generated(overlay: Overlay) -> Refusal:
    seen = f"no {_file_of(overlay).relative_to(ROOT)}"
    cure = "./glm53 knobs write makes it from overlay.toml."
    return Refusal(f"overlay {overlay.name}", seen, "its compose file", cure)


def _survey(line: CommandLine, overlays: tuple[Overlay, ...], dotenv: Path) -> Surroundings:
    """The settings. A stack with a bad value must still come down: then only starting verbs refuse."""
    try:
        seen = survey(ROOT, os.environ, overlays, dotenv)
    except Refusals as bad:
        if line.starts or line.verb == "config":
            raise
        for refusal in bad.refusals:
            print(f"glm53: {refusal} (not needed for {line.verb})", file=sys.stderr)
        seen = survey(ROOT, {name: os.environ[name] for name in os.environ if name in KEPT}, overlays, Path(os.devnull))
    for warning in (*seen.warnings, *(seen.remarks if line.starts or line.verb == "config" else ())):
        print(f"glm53: {warning}", file=sys.stderr)
    return seen
