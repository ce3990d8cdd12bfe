"""The box's own faults, found before anybody is asked: files, folders, settings that no box could serve with."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from core.log import log
from core.plan import BoxPlan
from core.refusal import Refusal, Refusals
from core.settings import Settings
from core.units import show_seconds
from entrypoint.boot import Boot
from entrypoint.caches import network_refusal
from entrypoint.serve import box_paths, engine_command, key_of, planned_speculation
from entrypoint.serve.environment import without_kit
from entrypoint.sizing.padding import unpadded, without_overlay
from entrypoint.stages.plans import overlays, trial_plan
from experimental.overlays import PLUGIN, ROOMS, misset, mounted, switched, unfit
from image import identity, startup
from model import read_json


def disks(settings: Settings) -> tuple[str, ...]:
    """The paths whose file systems the facts measure."""
    return ("/", *(settings.text(name) for name in ("MODEL_DIR", "LOG_DIR", "CACHE_ROOT", "STATE_DIR")))


def refusals(boot: Boot, settings: Settings) -> Iterator[Refusal]:
    """Everything that is wrong on this box alone."""
    yield from stock(settings)
    yield from unloaded(settings, boot.environ)
    yield from _checkpoint("MODEL_DIR", Path(settings.text("MODEL_DIR")), "The checkpoint")
    yield from _divides("MODEL_HOST_DIR", Path(settings.text("MODEL_DIR")), settings.text("TP"))
    if settings.text("ENGINE_PROFILE") == "gb10":
        yield from _padded(Path(settings.text("MODEL_DIR")), overlays(settings))
    yield from misfits(settings, identity.site_packages(), boot.environ)
    plan = trial_plan(boot, settings)
    try:
        engine_command(plan, BoxPlan(0, boot.tp, "", "", "", "", 1, 1, paths=box_paths(settings)), {})
    except Refusal as refusal:
        yield refusal
    else:
        if planned_speculation(plan).method == "dflash":
            yield from _checkpoint("DFLASH_MODEL", Path(settings.text("DFLASH_MODEL")), "The drafter")
            yield from _divides("DFLASH_HOST_DIR", Path(settings.text("DFLASH_MODEL")), settings.text("TP"))
    for name in ("LOG_DIR", "CACHE_ROOT", "STATE_DIR"):
        yield from _writable(name, Path(settings.text(name)))
    mounted = network_refusal(Path(settings.text("CACHE_ROOT")).resolve(), (boot.root / "proc/mounts").read_text())
    if mounted is not None:
        yield mounted
    yield from _python(settings.text("ENGINE_PYTHON"))
    yield from _ports(settings)
    yield from _key_file(settings.text("API_KEY_FILE"))
    yield from startup.template_refusals(settings.text("CHAT_TEMPLATE"))
    if startup.wants_plugin(boot.environ):
        yield from _attention_plugin(boot.environ, settings.text("ENGINE_PYTHON"))


def stock(settings: Settings) -> Iterator[Refusal]:
    """No overlay is mounted and nobody said that is meant: the compose file was started by itself."""
    meant = settings.flag("ALLOW_STOCK") or settings.text("ENGINE_PROFILE") != "gb10"
    if not meant and not settings.text("GLM53_OVERLAYS"):
        cure = "Start with ./glm53 up -d; or ./glm53 --stock up -d for vLLM's stock kernels, about half the speed."
        yield Refusal("overlays", "none is mounted", "those that ./glm53 mounts", cure)


def misfits(
    settings: Settings, site: Path | None, environ: Mapping[str, str], rooms: Sequence[Path] = ROOMS
) -> Iterator[Refusal]:
    """A mounted overlay that hooks functions which this image's vLLM does not have, or has a setting that it does not
    take: vLLM would end over it later.
    """
    _, on = mounted(settings.text("GLM53_OVERLAYS"), rooms)
    yield from misset(on, environ)
    if site is None:
        return  # no image of this kit: vLLM's own processes look
    off = switched(on, environ, "0")
    for overlay in on:
        wrong = unfit(overlay, site) if overlay.name not in off else ()
        if wrong:
            cure = f"Leave it out on every box: ./glm53 --without {overlay.name} up -d; or use an image that it fits."
            seen = "; ".join(map(str, wrong))
            yield Refusal(f"overlay {overlay.name}", seen, "the functions of vLLM that it knows", cure)


def unloaded(settings: Settings, environ: Mapping[str, str]) -> Iterator[Refusal]:
    """VLLM_PLUGINS lets vLLM load other plugins than ours: overlays would do nothing, and nobody would say so."""
    named = environ.get("VLLM_PLUGINS", "")
    if named and settings.text("GLM53_OVERLAYS") and PLUGIN not in named.split(","):
        cure = f"Write VLLM_PLUGINS={named},{PLUGIN}, or leave it unset; ./glm53 --stock up -d is without overlays."
        yield Refusal("VLLM_PLUGINS", named, f"{PLUGIN} among them, which hooks the overlays", cure)


def _checkpoint(name: str, path: Path, what: str) -> Iterator[Refusal]:
    if (path / "config.json").is_file():
        return
    seen = f"{path} has no config.json" if path.is_dir() else f"{path} is not a folder"
    cure = f"{what} must be mounted there: see the hf download line of ./glm53 up."
    if name == "DFLASH_MODEL":
        cure += " SPEC_METHOD=mtp or none serves without it."
    yield Refusal(name, seen, f"a folder with the model's files on {os.uname().nodename}", cure)


def _divides(knob: str, path: Path, tp: str) -> Iterator[Refusal]:
    """A checkpoint whose heads do not split over the ranks is refused before minutes of loading."""
    config = read_json(path / "config.json")  # a missing one is named by _checkpoint; an unreadable one by vLLM
    refusal = unpadded(config, tp, path, knob=knob) if config else None
    if refusal is not None:
        yield refusal


def _padded(path: Path, mounted: tuple[str, ...]) -> Iterator[Refusal]:
    """A folder of hard links that counts on the overlay's zeros is refused where nothing would add them."""
    refusal = without_overlay(read_json(path / "config.json") or {}, mounted, path)
    if refusal is not None:
        yield refusal


def _writable(name: str, path: Path) -> Iterator[Refusal]:
    probe = path / f".glm53-{os.getpid()}"
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as error:
        yield Refusal(
            name,
            f"{path}: {error.strerror}",
            "a folder that can be written",
            f"Mount a writable volume there, or set {name} in compose/.env.",
        )


def _python(text: str) -> Iterator[Refusal]:
    if shutil.which(text) is None:
        cure = "Unset ENGINE_PYTHON in the image; elsewhere name the python of an environment that has vLLM."
        yield Refusal("ENGINE_PYTHON", f"{text} cannot be executed", "the Python that has vLLM", cure)


def _key_file(text: str) -> Iterator[Refusal]:
    try:
        key_of(text)
    except Refusal as refusal:
        yield refusal


def _ports(settings: Settings) -> Iterator[Refusal]:
    port = settings.integer("API_PORT")
    if port == settings.integer("STATUS_PORT"):
        cure = "Set one of them to another port in compose/.env, alike on all boxes."
        yield Refusal("STATUS_PORT", f"{port}, which is API_PORT too", "a port of its own for the page", cure)


def _attention_plugin(environ: Mapping[str, str], python: str) -> Iterator[Refusal]:
    try:
        found = startup.plugins(python, without_kit(environ.get("PYTHONPATH", "")))
    except Refusal as refusal:
        yield refusal
    else:
        yield from startup.plugin_refusals(environ, found)


async def sweep(boot: Boot, settings: Settings) -> None:
    """End what a killed kit of this box left running, before a new engine could meet it."""
    from entrypoint.supervise import confirm_gone, log_path, note_path

    note = note_path(log_path(settings.text("LOG_DIR"), settings.text("ROLE")))
    gone = await confirm_gone(boot.lan, note)
    if gone.ended or gone.removed:
        log(
            "facts",
            "an engine of an earlier start was still here",
            processes=gone.ended,
            shm_removed=len(gone.removed),
            took=show_seconds(gone.seconds),
        )
    if not gone.confirmed:
        raise Refusals(
            (
                Refusal(
                    "engine",
                    f"processes {', '.join(str(pid) for pid, _ in gone.left)} of an earlier start do not end",
                    "no engine process before a new one starts",
                    "Reboot this box: they hang in the kernel.",
                ),
            )
        )
