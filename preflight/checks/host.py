"""Rows about kernel, desktop, GPUs and disks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from core.row import Row
from core.units import GIB, show_size
from preflight.checks.scene import Scene, row
from preflight.facts import files
from preflight.facts.host import NETWORK_FILE_SYSTEMS

# Kernel release prefix -> (what it does, what to boot instead). Reported.
BAD_KERNELS: Mapping[str, tuple[str, str]] = {
    "7.0.0-1019-nvidia": ("memory registration fails with ENOMEM", "6.17.0-1032-nvidia"),
}
ELSEWHERE = NETWORK_FILE_SYSTEMS | {"9p"}  # another machine's files, or those of a virtual machine's host
CACHE_ROOM = 20 * GIB  # for kernels and graphs of a few settings; a choice: nobody has reported their size
HOT = 88  # degrees Celsius


def kernel(scene: Scene) -> Iterator[Row]:
    """Kernels that are known to fail."""
    release = scene.survey.box.kernel
    for bad, (what, instead) in BAD_KERNELS.items():
        if release.startswith(bad):
            cure = f"Install {instead}, make it GRUB's default, hold it and reboot; the section below has the commands."
            yield row("FAIL", f"{release}: {what}", f"another kernel, e.g. {instead}", cure)
    yield row("info", f"kernel {release or 'unknown'}")


def desktop(scene: Scene) -> Iterator[Row]:
    """A desktop session takes memory and GPU time from the model."""
    for unit in scene.survey.host.desktops[:1]:
        cure = "sudo systemctl set-default multi-user.target && sudo systemctl isolate multi-user.target"
        yield row("WARN", f"{unit} runs a desktop", "a headless box", cure)


def gpu(scene: Scene) -> Iterator[Row]:
    """One GPU that NVML sees, not held back."""
    found = scene.survey.gpus
    if scene.wanted.cpu:
        return
    if not found:
        seen = "no NVML here" if found is None else "NVML counts no GPU"
        cure = "nvidia-smi on the host; if it works there: sudo nvidia-ctk runtime configure --runtime=docker, restart."
        yield row("FAIL", seen, "one GPU in every box", cure)
    for one in found or ():
        yield row("info", f"{one.name}, driver {one.driver}, {one.temperature} C")


def clocks(scene: Scene) -> Iterator[Row]:
    """Something holds the GPU's clock down, or it is hot."""
    for one in scene.survey.gpus or ():
        if one.limits:
            cure = "Check the power supply (the box's own 240 W one) and the airflow; unplug for a minute if it stays."
            seen = f"{', '.join(one.limits)}; {one.clock} of {one.max_clock} MHz, {one.temperature} C"
            yield row("WARN", seen, "no clock limit", cure)
        elif one.temperature >= HOT:
            yield row("WARN", f"{one.temperature} C", f"below {HOT} C", "Give the box air.")


def other_users(scene: Scene) -> Iterator[Row]:
    """Other processes on the GPU take memory that the plan counts on."""
    for one in scene.survey.gpus or ():
        if one.processes:
            names = ", ".join(f"{name} (pid {pid})" for pid, name in one.processes[:5])
            yield row("WARN", f"{names} on the GPU", "nobody else", "End it: docker ps, nvidia-smi.")


def file_systems(scene: Scene) -> Iterator[Row]:
    """The checkpoint and the caches on a network file system."""
    wanted = scene.wanted
    for what, path in (("model", wanted.model), ("cache", wanted.cache), ("logs", wanted.logs)):
        mount = scene.survey.host.mount_of(path) if path else None
        if mount is not None and mount.kind in ELSEWHERE:
            seen = f"the {what} folder {path} is on {mount.kind} ({mount.source})"
            yield row("WARN", seen, "a local disk", "Copy it to this box's own disk.")
    mount = scene.survey.host.mount_of(wanted.cache) if wanted.cache else None
    if mount is not None and mount.read_only:
        seen = f"the cache folder {wanted.cache} is mounted read-only"
        yield row("FAIL", seen, "a folder that can be written", "Mount it without :ro.")


def cache_folder(scene: Scene) -> Iterator[Row]:
    """Caches that another user wrote (a container under another user, a copy by hand): nothing new would be kept."""
    if not scene.wanted.inside:
        return  # on the host: the container writes there, not who asks
    for folder in scene.survey.host.folders:
        if folder.path != scene.wanted.cache or not folder.locked:
            continue
        first = "the folder itself" if folder.locked[0] == "." else ", ".join(folder.locked[:3])
        seen = f"{folder.path} belongs to user {folder.owner}; user {folder.user} cannot write {first}"
        cure = "On the host, for the folder that CACHE_HOME names: sudo chown -R root: <folder>."
        yield row("FAIL" if folder.locked[0] == "." else "WARN", seen, "a cache that the kit owns", cure)


def disk(scene: Scene) -> Iterator[Row]:
    """What vLLM compiles and tunes is kept in the cache."""
    space = scene.survey.box.disks.get(scene.wanted.cache)
    if space is not None and space[1] < CACHE_ROOM and not scene.wanted.cpu:
        seen = f"{show_size(space[1])} free for {scene.wanted.cache}"
        cure = "Make room, or set CACHE_HOME in compose/.env to a larger disk; else every boot compiles anew."
        yield row("WARN", seen, f"{show_size(CACHE_ROOM)} for compiled kernels", cure)


def model_files(scene: Scene) -> Iterator[Row]:
    """Every shard that the checkpoint's index names is there and as long as its own header says."""
    for what, path in (("checkpoint", scene.wanted.model), ("drafter", scene.wanted.drafter)):
        folder = Path(path) if path else None
        if folder is None or not folder.is_dir():
            continue  # a missing folder is refused in stage 3
        missing, short = files.missing(folder), files.cut_short(folder)
        cure = f"Download again into {folder}: hf download resumes what is incomplete."
        for names, fault in ((missing, "missing or empty"), (short, "cut short")):
            if names:
                more = f" and {len(names) - 3} more" if len(names) > 3 else ""
                seen = f"{what}: {', '.join(names[:3])}{more} {fault}"
                yield row("FAIL", seen, "all files of the index, whole", cure)
