"""Private Python environments for verbs that need packages: made on first use, with progress.

An environment's folder name ends in a hash of what it was made from, so a changed lock makes a new one
and two clones share one. Making is guarded by a lock file; a half-made one is never used.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from core.refusal import Refusal
from core.units import MIB, show_seconds, show_size
from launcher.paths import ROOT, cache

Make = Callable[[Path], None]
SAY_EVERY_S = 10.0
NEEDS = 1024 * MIB  # of free disk; the development environment takes 630 MiB (measured)


def python_of(environment: Path) -> Path:
    """The interpreter of an environment's folder."""
    return environment / "bin" / "python"


def locked(name: str) -> Path:
    """The environment of locks/<name>.txt (`kit` or `dev`); made when it does not exist yet."""
    lock = ROOT / "locks" / f"{name}.txt"

    def make(folder: Path) -> None:
        pip(folder, "install", "--require-hashes", "-r", str(lock))

    return ensure(name, lock.read_bytes(), make)


def ensure(name: str, made_from: bytes, make: Make, needs: int = NEEDS) -> Path:
    """The folder of environment `name` for this content and interpreter; `make` installs into a fresh venv.

    Raises Refusal when the disk has less than `needs` bytes free, when venv is missing or an installation fails; the
    log's path is in it.
    """
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    digest = hashlib.sha256(made_from + version.encode()).hexdigest()[:10]
    base = cache() / "envs"
    folder = base / f"{name}-{digest}"
    if (folder / "COMPLETE").exists():
        return folder
    base.mkdir(parents=True, exist_ok=True)
    with (base / f".{name}-{digest}.lock").open("w") as guard:
        _wait_for(guard.fileno(), name)
        if (folder / "COMPLETE").exists():
            return folder
        started = time.monotonic()
        _room(base, needs)
        print(f"glm53: making the private environment '{name}' in {folder} (once)", file=sys.stderr, flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        _venv(folder)
        make(folder)
        (folder / "COMPLETE").write_text(time.strftime("%Y-%m-%dT%H:%M:%S\n"))
        print(
            f"glm53: '{name}' ready after {show_seconds(time.monotonic() - started)}",
            file=sys.stderr,
            flush=True,
        )
    return folder


def _room(base: Path, needs: int) -> None:
    """Refusal when the disk of the cache is too full: half an hour of download would end in a stack of errors."""
    free = shutil.disk_usage(base).free
    if free < needs:
        cure = f"Free some of it, or put the cache on another disk: GLM53_CACHE=... (now {cache()})."
        raise Refusal("disk", f"{show_size(free)} free for the cache", f"{show_size(needs)} or more", cure)


def pip(folder: Path, *arguments: str, environment: dict[str, str] | None = None) -> None:
    """Run pip of the environment with a line of progress every few seconds; Refusal on failure."""
    log = folder / "pip.log"
    command = [str(python_of(folder)), "-m", "pip", "--disable-pip-version-check", "--no-input", *arguments]
    started, due = time.monotonic(), SAY_EVERY_S
    with log.open("ab") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=subprocess.STDOUT, env={**os.environ, **(environment or {})}
        )
        try:
            while process.poll() is None:
                time.sleep(0.2)
                elapsed = time.monotonic() - started
                if elapsed >= due:
                    due += SAY_EVERY_S
                    print(f"glm53:   {show_seconds(elapsed)}  {_last_step(log)}", file=sys.stderr, flush=True)
        except BaseException:
            process.kill()
            process.wait()
            raise
    if process.returncode != 0:
        raise Refusal(
            "the private environment",
            f"pip failed ({_last_line(log)})",
            "an installation that succeeds",
            f"Read {log}",
        )


def _venv(folder: Path) -> None:
    made = subprocess.run([sys.executable, "-m", "venv", str(folder)], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        raise Refusal(
            "python3-venv",
            (made.stdout + made.stderr).strip().splitlines()[0] if (made.stdout + made.stderr).strip() else "no venv",
            "a Python that can make a virtual environment",
            f"sudo apt-get install python{version}-venv",
        )


def _wait_for(descriptor: int, name: str) -> None:
    """Take the lock; say so when another process is making the same environment."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print(f"glm53: waiting for another process that makes '{name}'", file=sys.stderr, flush=True)
        fcntl.flock(descriptor, fcntl.LOCK_EX)


def _last_step(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if not line.startswith("WARNING")]
    return lines[-1].strip()[:90] if lines else ""


def _last_line(log: Path) -> str:
    return _last_step(log) or "no output"
