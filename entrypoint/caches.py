"""The engine's caches on disk: two tiers, where they may lie, what a box says of its own, what may not survive a boot.

shared  what one build of vLLM compiles for one architecture and KV dtype, whatever it serves: Triton, FlashInfer,
        TileLang, CUDA
keyed   what depends on how it serves and on how weights are treated too: torch.compile and its graphs, autotune results

Both hold what this box's rank needed; `tiers` names them, `state` reads and `served` writes what was kept of them.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import shutil
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from core.plan import BoxPlan, Command, GroupPlan
from core.refusal import Refusal
from core.row import Row
from entrypoint.serve.arguments import arguments
from entrypoint.serve.environment import AUTOTUNE_DIR, OF_ONE_BOOT
from entrypoint.treatment import TAG
from preflight.checks.scene import link_to
from preflight.facts.host import NETWORK_FILE_SYSTEMS

YOUNG_S = 86400.0  # what served within a day stays too: somebody goes to and fro between settings
KEPT = 4  # folders of a tier; more of them are other settings' and versions', and a disk is finite
STAMP = "glm53.json"
LOCK_DEPTH = 8  # folders below CACHE_ROOT; no compiler nests its locks deeper
# Options that say where and as whom an engine serves; compiled code does not depend on them.
WHERE = ("--served-model-name", "--host", "--port", "--master-addr", "--master-port", "--node-rank", "--api-key")


def filesystem(path: Path, mounts: str) -> str:
    """Type of the file system that holds `path`, from the text of /proc/mounts; "" when no line fits."""
    best, found = -1, ""
    for line in mounts.splitlines():
        words = line.split()
        if len(words) < 3:
            continue
        point = Path(words[1].replace("\\040", " "))
        if (point == path or point in path.parents) and len(point.parts) >= best:
            best, found = len(point.parts), words[2]
    return found


def network_refusal(path: Path, mounts: str) -> Refusal | None:
    """Compiled kernels on a network file system: two boxes would write one cache, and locks do not hold there."""
    kind = filesystem(path, mounts)
    if kind not in NETWORK_FILE_SYSTEMS:
        return None
    return Refusal(
        "CACHE_ROOT", f"{path} on {kind}", "a disk of this box", "Set CACHE_HOME to a folder on a local disk."
    )


def forget_autotune(command: Command, differ: bool = False) -> bool:
    """Remove FlashInfer's autotune results of the last boot; True when there were some.

    At TP > 1 rank 0 alone saves them: at the next boot it skips a collective that the other ranks wait in (reported).
    Those that AUTOTUNE_CACHE=persist keeps go only where some boxes have them and some have not (`differ`).
    Raises Refusal when they cannot be removed.
    """
    path = command.environment.get(AUTOTUNE_DIR)
    if path is None or (Path(path).name != OF_ONE_BOOT and not differ):
        return False
    try:
        shutil.rmtree(Path(path))
    except FileNotFoundError:
        return False
    except OSError as error:
        seen = f"{path}: {error.strerror}"
        raise Refusal("CACHE_ROOT", seen, "a folder whose autotune results can be removed", f"rm -r {path}") from None
    return True


@dataclass(frozen=True)
class Tiers:
    """Names of the two folders below CACHE_ROOT/shared and CACHE_ROOT/keyed."""

    shared: str
    keyed: str

    def paths(self, root: str) -> dict[str, str]:
        """As BoxPlan.paths has them."""
        return {"cache.shared": f"{root}/shared/{self.shared}", "cache.keyed": f"{root}/keyed/{self.keyed}"}


def tiers(plan: GroupPlan, vllm: str, machine: str = "") -> Tiers:
    """The tiers of a whole group plan under this vLLM. SHARED_TAG and CACHE_TAG name them by hand; the keyed one's name
    ends with the tag of the weights all the same. Shared kernels are found by a hash of their own sources.
    """
    machine = machine or platform.machine()
    kv = plan.get("KV_CACHE_DTYPE") or "auto"
    shared = plan.get("SHARED_TAG") or f"vllm-{vllm}-{plan.profile}-{machine}-{kv}"
    anywhere = BoxPlan(0, plan.tp, "", "", "", "", 1, 1, paths={"model": "", "drafter": ""})
    words, options = arguments(plan, anywhere), []
    for place, word in enumerate(words):
        if word not in WHERE and (place == 0 or words[place - 1] not in WHERE):
            options.append(word)
    text = json.dumps([*options, plan.tp, plan.get("GLM53_OVERLAYS") or ""])
    key = hashlib.sha256(text.encode()).hexdigest()[:12]
    treated = f"-w{plan.get(TAG)}" if plan.get(TAG) else ""
    return Tiers(shared, (plan.get("CACHE_TAG") or f"{shared}-{key}") + treated)


def vllm_version(image: Mapping[str, object], python: str) -> str:
    """vLLM's version: as the image records it, else as installed beside the engine's Python; "unknown" for neither."""
    recorded = image.get("versions")
    if isinstance(recorded, dict) and recorded.get("vllm"):
        return str(recorded["vllm"])
    found = shutil.which(python)
    for info in Path(found).parent.parent.glob("lib/python3*/site-packages/vllm-*.dist-info") if found else ():
        return info.name.removeprefix("vllm-").removesuffix(".dist-info")
    return "unknown"


@dataclass(frozen=True)
class Stamp:
    """What a generation that served left in a tier: this box's rank of how many, and the order of all."""

    rank: int
    order: tuple[str, ...]


def _stamp(folder: Path) -> Stamp | None:
    try:
        read = json.loads((folder / STAMP).read_text())
        return Stamp(int(read["rank"]), tuple(map(str, read["order"])))
    except (OSError, ValueError, KeyError, TypeError):
        return None  # none, or half written: the caches are then as good as cold


def state(paths: Mapping[str, str]) -> str:
    """This box's tiers in a few words, for the others to compare: "shared warm, keyed cold, no autotune"."""
    words = [
        f"{tier} {'warm' if _stamp(Path(paths[f'cache.{tier}'])) else 'cold'}"
        for tier in ("shared", "keyed")
        if f"cache.{tier}" in paths
    ]
    kept = any((Path(paths["cache.keyed"]) / "autotune").glob("*")) if "cache.keyed" in paths else False
    return ", ".join([*words, "autotune kept" if kept else "no autotune"]) if words else ""


def served(paths: Mapping[str, str], rank: int, order: tuple[str, ...]) -> str:
    """Remember that a generation served from these tiers, and remove of each what is neither young nor of the newest.

    Returns why it could not be remembered, or "": a full disk makes the next start cold, and ends nothing.
    """
    for tier in ("shared", "keyed"):
        folder = Path(paths.get(f"cache.{tier}", ""))
        if not folder.name:
            continue
        try:
            folder.mkdir(parents=True, exist_ok=True)
            new = folder / f"{STAMP}.new"
            new.write_text(json.dumps(asdict(Stamp(rank, order))))
            new.replace(folder / STAMP)
            others = sorted((one for one in folder.parent.iterdir() if one.is_dir()), key=_used, reverse=True)[KEPT:]
        except OSError as error:
            return f"{folder}: {error.strerror}"
        for one in others:
            if time.time() - _used(one) > YOUNG_S:
                shutil.rmtree(one, ignore_errors=True)
    return ""


def _used(folder: Path) -> float:
    """When a tier last served; one that never did is as old as its folder."""
    for path in (folder / STAMP, folder):
        try:
            return path.stat().st_mtime
        except OSError:
            continue
    return 0.0


def cold_by_rank(paths: Mapping[str, str], rank: int, order: tuple[str, ...]) -> str:
    """What a changed head or rank order leaves cold on this box, or ""."""
    before = _stamp(Path(paths["cache.keyed"])) if "cache.keyed" in paths else None
    if before is None or (before.rank, before.order) == (rank, order):
        return ""
    if before.rank == rank:
        return f"rank {rank} as before, but the order was {', '.join(before.order)}: nothing of this box goes cold"
    size = len(before.order)
    return (
        f"this box is rank {rank} now, it was {before.rank} of {size}: what torch.compile and autotuning kept for rank "
        f"{before.rank} is cold ({paths['cache.keyed']}); HEAD_HOST or ROLE keep the order"
    )


def rows(states: Mapping[str, str]) -> tuple[Row, ...]:
    """The caches of all boxes beside each other: name of a box -> its `state`; empty texts are not known."""
    known = {name: text for name, text in states.items() if text}
    seen = "; ".join(f"{name}: {text}" for name, text in sorted(known.items()))
    if len(set(known.values())) <= 1:
        return (Row("caches", "info", next(iter(known.values())) + " on all boxes", "", ""),) if known else ()
    cure = (
        "The cold box compiles while the others wait for it: its first start takes longer, and engine timeouts must "
        "allow for it. Copy CACHE_HOME of a warm box, or clear it on all."
    )
    return (Row("caches", "WARN", seen, "the same on all boxes", cure, link_to("caches")),)


def autotune_differs(states: Iterable[str]) -> bool:
    """Some boxes kept autotune results and some did not: ranks that restore them skip a collective of the others."""
    return len({text.endswith("autotune kept") for text in states if text}) > 1


def sweep_locks(root: Path, proc: Path = Path("/proc")) -> list[str]:
    """Remove lock files below `root` that no process has open or locked; a killed compiler leaves one, and the next
    waits for ever. Call it while no engine of this box runs. Returns the removed paths.
    """
    found = []
    for folder, names, files in os.walk(root):
        if len(Path(folder).relative_to(root).parts) >= LOCK_DEPTH:
            names.clear()
        # torch's cpp_extension calls its file `lock`; Triton, FlashInfer and ninja end theirs in .lock
        found += [Path(folder) / name for name in files if name == "lock" or name.endswith(".lock")]
    if not found:
        return []
    held = _open_files(proc)
    removed = []
    for path in found:
        try:
            status = path.stat()
            if (status.st_dev, status.st_ino) not in held and _unlocked(path):
                path.unlink()
                removed.append(str(path))
        except OSError:
            continue  # gone meanwhile, or not ours to remove
    return removed


def _unlocked(path: Path) -> bool:
    """No process holds it, also none that another pid namespace hides."""
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def _open_files(proc: Path) -> set[tuple[int, int]]:
    """(device, inode) of every file that a process has open."""
    held = set()
    for entry in proc.glob("[0-9]*/fd/*"):
        try:
            status = entry.stat()
        except OSError:
            continue
        held.add((status.st_dev, status.st_ino))
    return held
