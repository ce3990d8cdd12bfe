"""Building the image, as steps one can read before they run: `image/build.sh --dry-run`.

pull      the base, and its digest
context   a copy of the kit without .git and caches; a packed FlashKDA where one is given
wheels    the locked packages of the kit, for the platform of the image
build     docker build; output into a log file, a status line a minute
push      with --push
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.refusal import Refusal
from image.bases import Base, Bases, choose, load, releases, repository
from image.identity import image_id
from image.inspection import inspect
from launcher.paths import ROOT, cache

GIB = 2**30
# What goes into the image: all rooms but tests and benches (the registry of knobs asks every room, the lab too).
ROOMS = (
    "client", "compose", "core", "docs", "entrypoint", "evidence", "experimental", "fabric", "fleet", "gate", "group",
    "hosts", "image", "lab", "launcher", "preflight", "smoketest",
)  # fmt: skip
FILES = ("glm53", "pyproject.toml", "model.toml", "model.py", "LICENSE", "NOTICE", "KNOBS.md", "README.md")
UNWANTED = shutil.ignore_patterns("__pycache__", "*.pyc", ".env", "ext.yaml", "*.log", ".git*")
# Programs for people with a clone: they reproduce single faults at full size.
LEFT_OUT = ("gate/repro",)
ARCHES = {"aarch64": "arm64", "arm64": "arm64", "x86_64": "amd64", "amd64": "amd64"}
WHEELS = {"arm64": "aarch64", "amd64": "x86_64"}


@dataclass(frozen=True)
class Options:
    """What the user asked for."""

    base: Base
    tag: str
    arch: str
    push: bool
    flashkda: Path | None
    log: Path


@dataclass(frozen=True)
class Step:
    """One line of --dry-run: a command (`argv`), or what Python does (`does`)."""

    name: str
    does: str
    argv: tuple[str, ...] = ()


def steps(options: Options, context: str = "CONTEXT", digest: str = "DIGEST") -> list[Step]:
    """Everything a build does, in order. Pure."""
    base = options.base
    docker = ("docker", "build", "--platform", f"linux/{options.arch}", "--progress", "plain")
    arguments = {
        "BASE": base.image if base.local else f"{repository(base.image)}@{digest}",
        "BASE_NAME": base.name,
        "BASE_DIGEST": digest,
    }
    listed = [word for name, value in arguments.items() for word in ("--build-arg", f"{name}={value}")]
    plan = [
        Step("disk", f"at least {base.disk_gib} GiB free where Docker keeps images"),
        Step("context", f"copy what git tracks of {', '.join(ROOMS)} and {len(FILES)} files; no .git, no .env"),
        Step("flashkda", flashkda_note(base, options.flashkda)),
        Step("wheels", "the locked packages of the kit as files", wheels(base, options.arch, context)),
        Step("build", f"output in {options.log}", (*docker, *listed, "-t", options.tag, context)),
        Step("label", "what verify_base found, as labels", ("docker", "build", "-q", "-t", options.tag, "-")),
        Step("inspect", "labels and id of the result", ("docker", "image", "inspect", options.tag)),
    ]
    if not base.local:
        pull = ("docker", "pull", "--platform", f"linux/{options.arch}", base.image)
        look = ("docker", "image", "inspect", "--format", "{{json .RepoDigests}}", base.image)
        plan.insert(1, Step("pull", "the base", pull))
        plan.insert(2, Step("digest", "what the tag stands for today", look))
    if options.push:
        plan.append(Step("push", "to the registry of the tag", ("docker", "push", options.tag)))
    return plan


def flashkda_note(base: Base, packed: Path | None) -> str:
    """What becomes of FlashKDA: the kit builds none itself."""
    if packed is not None:
        return f"taken over from {packed}, checked against the base"
    if base.flashkda == "rebuild":
        return "skipped: the base keeps its own, WHICH ROUNDS ITS STATE; --flashkda DIR takes a packed build over"
    own = "the base's own is reported good" if base.flashkda == "bundled" else "the base has none"
    return f"skipped: {own} (--flashkda DIR takes a packed build over)"


def wheels(base: Base, arch: str, context: str) -> tuple[str, ...]:
    """pip's command that fetches every locked package for the image's platform, by hash, without building any."""
    version = base.python
    platforms = [f"manylinux_2_28_{WHEELS[arch]}", f"manylinux_2_17_{WHEELS[arch]}", f"manylinux2014_{WHEELS[arch]}"]
    return (
        sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--require-hashes",
        "--only-binary", ":all:", "--python-version", version, "--implementation", "cp",
        *(word for name in platforms for word in ("--platform", name)),
        "-r", "locks/kit.txt", "-d", f"{context}/wheels",
    )  # fmt: skip


def run(arguments: list[str], say: Callable[[str], None] = print) -> int:
    """Exit status of image/build.sh."""
    parser = argparse.ArgumentParser(prog="image/build.sh", description=__doc__)
    parser.add_argument("--base", default=os.environ.get("BASE", ""), help="a base of image/bases.toml (or BASE)")
    parser.add_argument("--tag", default=os.environ.get("TAG", "") or "glm53:local", help="name of the image (or TAG)")
    parser.add_argument("--platform", default="", help="linux/arm64 or linux/amd64; needed on an amd64 host")
    parser.add_argument("--flashkda", type=Path, help="a folder packed by image/flashkda/artefact.py")
    parser.add_argument("--dry-run", action="store_true", help="print every step, do nothing")
    parser.add_argument("--push", action="store_true", help="push the tag when it is built")
    parser.add_argument("--force", action="store_true", help="also a base that is not in image/bases.toml")
    options = parser.parse_args(arguments)
    bases = load()
    base = choose(bases, options.base, force=options.force)
    log = cache() / "logs" / f"build-{time.strftime('%Y%m%d-%H%M%S')}.log"
    wanted = Options(base, options.tag, architecture(options.platform, base), options.push, options.flashkda, log)
    say(f"base {base.name} ({base.image}), proven here: {base.proven}{'; ' + base.note if base.note else ''}")
    if options.dry_run:
        for step in steps(wanted):
            say(f"{step.name:<9} {step.does}{chr(10) + ' ' * 10 + '$ ' + ' '.join(step.argv) if step.argv else ''}")
        return 0
    return build(wanted, bases, say)


def architecture(asked: str, base: Base, machine: str = "") -> str:
    """arm64 or amd64. GB10 is arm64: on an amd64 host one must say what is meant. Raises Refusal."""
    host = ARCHES.get(machine or platform.machine(), "")
    if asked:
        arch = ARCHES.get(asked.removeprefix("linux/"), "")
        if not arch:
            raise Refusal("--platform", asked, "linux/arm64 or linux/amd64", "--platform linux/arm64")
        return arch
    if host != "arm64" and not base.local:
        cure = "--platform linux/arm64 (needs emulation), or --platform linux/amd64 for a test of the build."
        raise Refusal("--platform", f"nothing, on a host that is {host or machine}", "GB10 boxes are arm64", cure)
    return host


def build(options: Options, bases: Bases, say: Callable[[str], None]) -> int:
    """Run the steps; the exit status of the one that failed, else 0."""
    _disk(options.base)
    digest = _pull(options, bases, say)
    options.log.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="glm53-build-") as folder:
        context = Path(folder)
        strange = copy_kit(ROOT, context)
        if strange:
            named = ", ".join(strange[:8]) + (", ..." if strange[8:] else "")
            say(f"context   left out, since git does not track it: {named}")
        say(f"flashkda  {flashkda_note(options.base, options.flashkda)}")
        _flashkda(options.flashkda, context)
        plan = {step.name: step for step in steps(options, str(context), digest)}
        say("wheels    fetching the kit's locked packages")
        if _logged(plan["wheels"].argv, options.log.with_suffix(".pip"), say, quiet=True):
            said = [line for line in options.log.with_suffix(".pip").read_text().splitlines() if "ERROR" in line]
            cure = f"Read {options.log.with_suffix('.pip')}"
            raise Refusal("wheels", (said or ["pip failed"])[-1], "every locked package for the platform", cure)
        status = _logged(plan["build"].argv, options.log, say)
    if status:
        say(f"the build failed (exit {status}); the end of {options.log}:")
        say("\n".join(options.log.read_text(errors="replace").splitlines()[-25:]))
        return status
    _label(options.tag, plan["label"].argv)
    found = _output(plan["inspect"].argv)
    say(f"built {options.tag} {image_id(found)}")
    for name, value in sorted((json.loads(found)[0]["Config"]["Labels"] or {}).items()):
        if name.startswith(("org.glm53.", "org.opencontainers.image.base")):
            say(f"  {name} = {value}")
    return subprocess.run(plan["push"].argv, check=False).returncode if options.push else 0


def _label(tag: str, argv: tuple[str, ...]) -> None:
    """Write the record inside the image into its labels: a registry shows those without pulling it."""
    labels = [word for pair in label_words(inspect(tag)).items() for word in ("--label", "=".join(pair))]
    command = (*argv[:-1], *labels, argv[-1])
    done = subprocess.run(command, input=f"FROM {tag}\n", capture_output=True, text=True, check=False)
    if done.returncode:
        raise Refusal(
            "label", (done.stderr.strip().splitlines() or ["docker build failed"])[-1], "labels", "Try again."
        )


def label_words(record: Mapping[str, Any]) -> dict[str, str]:
    """Label -> value from the record of verify_base."""
    states: dict[str, list[str]] = {}
    for patch, state in record["patches"].items():
        states.setdefault(state.replace(" ", "-"), []).append(patch)
    return {
        "org.opencontainers.image.version": record["kit"],
        "org.glm53.patched-tree": record["patched_tree"],
        "org.glm53.flashkda": record["flashkda"],
        **{f"org.glm53.patches.{state}": " ".join(patches) for state, patches in states.items()},
    }


def tracked(root: Path) -> frozenset[str] | None:
    """Files of a clone, relative to it; None where git knows of no clone just there (an unpacked archive)."""
    command = ["git", "-C", str(root), "ls-files", "-z", "--cached"]
    top = subprocess.run([*command[:3], "rev-parse", "--show-toplevel"], capture_output=True, text=True, check=False)
    if top.returncode or Path(top.stdout.strip()) != root.resolve():
        return None
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return frozenset(listed.split("\0"))


def copy_kit(root: Path, context: Path) -> list[str]:
    """The build context: the rooms and files of the image, its Dockerfile on top, and nothing else.

    Of a clone only what git tracks: a key or a compose file of one's own that lies in a room is nobody else's. Returns
    the files that were left out for that.
    """
    known, strange = tracked(root), list[str]()

    def ignored(folder: str, names: list[str]) -> set[str]:
        left = UNWANTED(folder, names)
        for name in set(names) - left:
            place = Path(folder, name)
            path = str(place.relative_to(root))
            if path in LEFT_OUT:
                left.add(name)
            elif known is not None and path not in known and not (place.is_dir() and not place.is_symlink()):
                left.add(name)
                strange.append(path)
        return left

    for room in (*ROOMS, "locks"):
        if (root / room).is_dir():
            shutil.copytree(root / room, context / "kit" / room, ignore=ignored)
    for file in FILES:
        if (root / file).is_file():
            shutil.copy2(root / file, context / "kit" / file)
    shutil.copy2(root / "image" / "Dockerfile", context / "Dockerfile")
    # The patches' inputs by themselves: a change elsewhere in the kit must not run them again.
    for name in ("image", "core"):
        shutil.copytree(context / "kit" / name, context / "patching" / name)
    for name in ("build.py", "build.sh", "bases.toml", "bases.py", "chat-template.jinja", "Dockerfile", "knobs.py"):
        (context / "patching" / "image" / name).unlink(missing_ok=True)
    for name in ("parsers", "flashkda"):
        shutil.rmtree(context / "patching" / "image" / name, ignore_errors=True)
    for path in context.rglob("*"):
        os.utime(path, (0, 0))
    return sorted(strange)


def _flashkda(packed: Path | None, context: Path) -> None:
    target = context / "flashkda"
    target.mkdir()
    if packed is not None:
        from image.flashkda.artefact import load as verified

        verified(packed)
        shutil.copytree(packed, target, dirs_exist_ok=True)
    (target / "CHOSEN").write_text("packed\n" if packed else "empty\n")


def _disk(base: Base) -> None:
    root = Path(_output(("docker", "info", "--format", "{{.DockerRootDir}}")).strip())
    place = root if root.exists() else Path("/")
    free = shutil.disk_usage(place).free / GIB
    if free < base.disk_gib:
        cure = "docker system df shows what can go; docker builder prune frees the build cache."
        raise Refusal("disk", f"{free:.0f} GiB free in {place}", f"{base.disk_gib} GiB for {base.name}", cure)


def _pull(options: Options, bases: Bases, say: Callable[[str], None]) -> str:
    """The digest of the base; of a local one its id."""
    base = options.base
    if base.local:
        done = subprocess.run(
            ("docker", "image", "inspect", "--format", "{{.Id}}", base.image),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise Refusal("BASE", f"no image {base.image} here", "the lab's base", "python3 -m lab.base")
        return done.stdout.strip()
    plan = {step.name: step for step in steps(options)}
    say(f"pull      {base.image}")
    if subprocess.run(plan["pull"].argv, check=False).returncode:
        cure = f"Docker Hub keeps only the last nightlies. BASE= one of {releases(bases)} is there to stay."
        raise Refusal("BASE", f"{base.image} could not be pulled", "a base the registry has", cure)
    digest = digest_of(_output(plan["digest"].argv), base.image)
    say(f"digest    {digest}")
    return digest


def digest_of(listed: str, image: str) -> str:
    """The digest under which the image's own repository has it, of Docker's list as JSON: one image may be of several.

    Raises Refusal where the list names none; a digest is never guessed.
    """
    short = repository(image).removeprefix("docker.io/").removeprefix("library/")
    for one in json.loads(listed) or ():
        name, _, digest = str(one).partition("@")
        if digest and name.removeprefix("docker.io/").removeprefix("library/") == short:
            return digest
    raise Refusal("BASE", f"no digest of {image} in {listed.strip()}", "the digest it was pulled by", "docker pull it.")


def _logged(argv: tuple[str, ...], log: Path, say: Callable[[str], None], *, quiet: bool = False) -> int:
    """Run with output into the log; the last line of it once a minute."""
    started = shown = time.monotonic()
    if not quiet:
        say(f"build     log in {log}")
    with log.open("wb") as out:
        environment = {**os.environ, "DOCKER_BUILDKIT": "1"}
        process = subprocess.Popen(argv, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT, env=environment)
        while process.poll() is None:
            time.sleep(0.5)
            if time.monotonic() - shown >= 60:
                shown = time.monotonic()
                lines = log.read_text(errors="replace").splitlines()
                say(f"build     {(shown - started) / 60:.0f} min  {lines[-1][:100] if lines else ''}")
    return process.returncode


def _output(argv: tuple[str, ...]) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Refusal(
            "docker",
            done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "no answer",
            "a Docker engine that answers",
            "Start it, or see .ci/docker-engine.",
        )
    return done.stdout


if __name__ == "__main__":
    try:
        sys.exit(run(sys.argv[1:]))
    except Refusal as refusal:
        print(f"image/build.sh: {refusal}", file=sys.stderr)
        sys.exit(2)
