"""What an overlay is: the typed reader of experimental/<name>/overlay.toml, the order, and the snapshot tag.

An overlay.toml says everything about an overlay that is not code:

    name = "dense_w4"                        # the folder's name
    summary = "one line for --help and the page"
    order = 30                               # place among the overlays; lower is mounted and hooked earlier
    default = true                           # on without being asked for
    switch = "GLM53_OVERLAY_DENSE_W4"        # 0 turns it off inside the container; a library has none
    needs = ["nvfp4"]                        # overlays that must be on
    excludes = []                            # overlays that must be off
    changes_weights = true                   # a snapshot of processed weights depends on it
    verified = ["cpu", "h200"]               # where its tests ran: cpu, h200, gb10
    cost = "accuracy cost, with its source"

    [[setting]]                              # a variable of its own; the name begins with the switch
    name = "GLM53_OVERLAY_DENSE_W4_MAX_TOKENS"
    default = "32"
    accepts = "1-64"                         # flag, pattern or FROM-TO; see experimental/settings.py
    why = "one sentence for KNOBS.md"

    [[mount]]                                # source in the repository, target in the container, read-only
    source = "experimental/dense_w4"
    target = "/opt/glm53-overlays/experimental/dense_w4"

    [[hook]]                                 # what it replaces in vLLM; see experimental/fit.py
    file = "vllm/model_executor/model_loader/base_loader.py"
    function = "BaseModelLoader.load_model"
    digests = ["..."]

Inside the container /opt/glm53-overlays is on vLLM's path, not the kit's folder; experimental/plugin.py runs there.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.refusal import Refusal
from experimental import settings
from experimental.fit import Misfit, misfits
from image import weights

ROOM = Path(__file__).resolve().parent
# Where the overlays lie in the container; the engine's PYTHONPATH when any of them is on.
CONTAINER = "/opt/glm53-overlays"
# Where the code of an overlay lies that vLLM runs: as mounted in a container, else in the clone.
ROOMS = (Path(CONTAINER) / "experimental", ROOM)
PREFIX = "GLM53_OVERLAY_"
PLACES = ("cpu", "h200", "gb10")
# Mounted with every overlay: the plugin vLLM loads, and what it imports.
COMMON = ("__init__.py", "plugin.py", "fit.py", "settings.py", "launch.py", "edit.py")
DIST_INFO = "glm53_overlays.dist-info"
# Its name among vLLM's plugins: DIST_INFO's entry_points.txt.
PLUGIN = "glm53"
SETTING = ("name", "default", "accepts", "why")


@dataclass(frozen=True)
class Mount:
    """A file or folder of the repository (`source`, relative to it) at `target` in the container, read-only."""

    source: str
    target: str


@dataclass(frozen=True)
class Setting:
    """A variable that the overlay reads; what it `accepts` is judged by experimental/settings.py."""

    name: str
    default: str
    accepts: str
    why: str


@dataclass(frozen=True)
class Hook:
    """A function of vLLM that the overlay replaces; `digests` of experimental/fit.py that it is known to fit."""

    file: str
    function: str
    digests: tuple[str, ...]


@dataclass(frozen=True)
class Overlay:
    """One folder under experimental/, as its overlay.toml declares it."""

    name: str
    summary: str
    order: int
    default: bool
    switch: str | None
    needs: tuple[str, ...]
    excludes: tuple[str, ...]
    changes_weights: bool
    verified: tuple[str, ...]
    cost: str
    settings: tuple[Setting, ...]
    mounts: tuple[Mount, ...]
    hooks: tuple[Hook, ...]

    @property
    def environment(self) -> tuple[tuple[str, str], ...]:
        """Names and defaults of its settings, in order."""
        return tuple((setting.name, setting.default) for setting in self.settings)

    @property
    def accepted(self) -> tuple[tuple[str, str], ...]:
        """Every variable it reads, the switch first, and what each accepts."""
        switch = ((self.switch, settings.FLAG),) if self.switch else ()
        return (*switch, *((setting.name, setting.accepts) for setting in self.settings))


def common_mounts() -> tuple[Mount, ...]:
    """What must be mounted once when any overlay is on."""
    package = [Mount(f"experimental/{name}", f"{CONTAINER}/experimental/{name}") for name in COMMON]
    return (*package, Mount(f"experimental/{DIST_INFO}", f"{CONTAINER}/{DIST_INFO}"))


def read(folder: Path) -> Overlay:
    """The overlay of a folder. Raises Refusal naming the key that is missing or wrong."""
    file = folder / "overlay.toml"
    try:
        data = tomllib.loads(file.read_text())
    except (OSError, ValueError) as error:  # TOML and UTF-8 that are none are ValueErrors
        raise Refusal(str(file), str(error), "a TOML file", "See experimental/overlays.py.") from None
    known = {
        "name": str, "summary": str, "order": int, "default": bool, "switch": str, "needs": list, "excludes": list,
        "changes_weights": bool, "verified": list, "cost": str, "setting": list, "mount": list, "hook": list,
    }  # fmt: skip
    required = ("name", "summary", "order", "default", "changes_weights", "verified", "cost", "mount")
    for key in required:
        if key not in data:
            raise _wrong(file, key, "nothing", "a value")
    for key, value in data.items():
        if key not in known or type(value) is not known[key]:  # a bool is an int to isinstance
            raise _wrong(file, key, repr(value), f"a {known[key].__name__}" if key in known else "no such key")
    for key in ("needs", "excludes", "verified"):
        if not all(isinstance(item, str) for item in data.get(key, ())):
            raise _wrong(file, key, repr(data[key]), "a list of texts")
    overlay = Overlay(
        name=data["name"],
        summary=data["summary"],
        order=data["order"],
        default=data["default"],
        switch=data.get("switch"),
        needs=tuple(data.get("needs", ())),
        excludes=tuple(data.get("excludes", ())),
        changes_weights=data["changes_weights"],
        verified=tuple(data["verified"]),
        cost=data["cost"],
        settings=tuple(Setting(**_fields(file, "setting", entry, SETTING)) for entry in data.get("setting", ())),
        mounts=tuple(Mount(**_fields(file, "mount", entry, ("source", "target"))) for entry in data["mount"]),
        hooks=tuple(_hook(file, entry) for entry in data.get("hook", ())),
    )
    _judge(file, overlay)
    return overlay


def read_all(room: Path = ROOM) -> tuple[Overlay, ...]:
    """Every overlay of the room in mounting order; `needs` come before what needs them."""
    found = sorted(
        (read(file.parent) for file in room.glob("*/overlay.toml")), key=lambda item: (item.order, item.name)
    )
    place = {overlay.name: index for index, overlay in enumerate(found)}
    mounted: dict[str, str] = {}
    for overlay in found:
        for mount in overlay.mounts:
            if mounted.setdefault(mount.target, overlay.name) != overlay.name:
                seen = f"{mount.target}, where {mounted[mount.target]} is mounted"
                raise _wrong(room / overlay.name / "overlay.toml", "mount", seen, "a target of its own")
    for overlay in found:
        file = room / overlay.name / "overlay.toml"
        for name in (*overlay.needs, *overlay.excludes):
            if name not in place:
                raise _wrong(file, "needs/excludes", name, "one of " + ", ".join(place))
        for name in overlay.needs:
            if place[name] > place[overlay.name]:
                raise _wrong(file, "order", str(overlay.order), f"a number above that of {name}")
    return tuple(found)


def variables(overlays: Iterable[Overlay]) -> set[str]:
    """Every variable that an overlay reads."""
    return {name for overlay in overlays for name, _ in overlay.accepted}


def misset(overlays: Iterable[Overlay], environ: Mapping[str, str]) -> tuple[Refusal, ...]:
    """A refusal for every variable of an overlay that says what the overlay would not take."""
    return tuple(
        Refusal(name, repr(text), wanted, f"Correct or remove {name} (overlay {overlay.name}).")
        for overlay in overlays
        for name, text, wanted in settings.faults(overlay.accepted, environ)
    )


def chosen(
    overlays: Iterable[Overlay],
    environ: Mapping[str, str],
    *,
    without: Collection[str] = (),
    wanted: Collection[str] = (),
    stock: bool = False,
) -> tuple[Overlay, ...]:
    """What is on: as the command line says, else as its switch in `environ` says (0 or 1), else by default.

    Raises Refusal for unknown names, what contradicts itself, needs and excludes.
    """
    every = tuple(overlays)
    _known(every, without=without, wanted=wanted)
    for name in wanted:
        if name in without:
            raise Refusal("--with", f"{name}, and --without {name}", "one of the two", "Leave one of them away.")
        if stock:
            raise Refusal("--stock", f"--with {name}", "no overlay asked for", "Leave --stock or --with out.")
    off, on = switched(every, environ, "0"), switched(every, environ, "1")
    for overlay in every:
        if overlay.name in wanted and overlay.name in off:
            seen = f"--with {overlay.name}, and {overlay.switch}=0"
            raise Refusal(f"overlay {overlay.name}", seen, "one of the two", f"Remove {overlay.switch}=0.")
    return () if stock else select(every, without=(*without, *off), wanted=(*wanted, *on))


def switched(overlays: Iterable[Overlay], environ: Mapping[str, str], text: str) -> tuple[str, ...]:
    """Names whose switch says `text` in `environ`: 0 leaves an overlay out, 1 puts an optional one on."""
    return tuple(overlay.name for overlay in overlays if overlay.switch and environ.get(overlay.switch) == text)


def _known(overlays: Iterable[Overlay], *, without: Collection[str], wanted: Collection[str]) -> None:
    names = [overlay.name for overlay in overlays]
    for option, given in (("--without", without), ("--with", wanted)):
        for name in given:
            if name not in names:
                raise Refusal(option, name or "nothing", "one of " + ", ".join(names), f"./glm53 {option} NAME ...")


def select(
    overlays: Iterable[Overlay], *, without: Collection[str] = (), wanted: Collection[str] = ()
) -> tuple[Overlay, ...]:
    """The overlays that are on: the defaults and `wanted`, less `without`. Raises Refusal on needs and excludes."""
    every = tuple(overlays)
    _known(every, without=without, wanted=wanted)
    on = [item for item in every if (item.default or item.name in wanted) and item.name not in without]
    names = {overlay.name for overlay in on}
    for overlay in on:
        for need in overlay.needs:
            if need not in names:
                raise Refusal(
                    f"overlay {overlay.name}", f"{need} left out", f"{need} on", f"Add --without {overlay.name} too."
                )
        for other in overlay.excludes:
            if other in names:
                raise Refusal(f"overlay {overlay.name}", f"{other} on", f"{other} left out", f"Add --without {other}.")
    return tuple(on)


def mounted(names: str, rooms: Sequence[Path] = ROOMS) -> tuple[Path, tuple[Overlay, ...]]:
    """The first of `rooms` that is there, and the overlays of GLM53_OVERLAYS (`a,b`) in it; what it does not hold is
    somebody else's and left out. Raises Refusal for an overlay.toml that is wrong.
    """
    room = next((room for room in rooms if room.is_dir()), ROOM)
    found = (room / name for name in names.split(",") if name)
    return room, tuple(read(folder) for folder in found if (folder / "overlay.toml").is_file())


def unfit(overlay: Overlay, tree: Path) -> tuple[Misfit, ...]:
    """The functions that the overlay hooks and that the vLLM in `tree` does not have as the overlay knows them."""
    return misfits(tree, tuple((hook.file, hook.function, hook.digests) for hook in overlay.hooks))


def snapshot_tag(overlays: Iterable[Overlay], environment: Mapping[str, str], room: Path = ROOM) -> str:
    """16 hex digits over what changes processed weights: settings and code, of the image and those overlays.

    An overlay whose switch is 0 changes nothing; an empty variable is an unset one, as its compose file has it.
    """
    parts = [weights.part(environment)]
    for overlay in sorted(overlays, key=lambda item: item.name):
        if not overlay.changes_weights or environment.get(overlay.switch or "") == "0":
            continue
        values = {name: environment.get(name) or value for name, value in overlay.environment}
        folders = (overlay.name, *overlay.needs)
        code = {
            str(file.relative_to(room)): hashlib.sha256(file.read_bytes()).hexdigest()
            for folder in folders
            for file in sorted((room / folder).glob("*.py"))
        }
        parts.append({"name": overlay.name, "settings": values, "code": code})
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def _fields(file: Path, table: str, entry: Any, names: tuple[str, ...]) -> dict[str, str]:
    if _keys(entry) != set(names) or not all(isinstance(value, str) for value in entry.values()):
        raise _wrong(file, f"[[{table}]]", repr(entry), "texts under the keys " + ", ".join(names))
    return dict(entry)


def _keys(entry: Any) -> set[str]:
    return set(entry) if isinstance(entry, dict) else set()


def _hook(file: Path, entry: Any) -> Hook:
    digests = entry.get("digests") if isinstance(entry, dict) else None
    if not isinstance(digests, list) or not all(isinstance(each, str) for each in digests):
        raise _wrong(file, "[[hook]]", repr(entry), "the keys file, function, digests (a list of texts)")
    named = {key: value for key, value in entry.items() if key != "digests"}
    return Hook(**_fields(file, "hook", named, ("file", "function")), digests=tuple(digests))


def _judge(file: Path, overlay: Overlay) -> None:
    if overlay.name != file.parent.name:
        raise _wrong(file, "name", overlay.name, file.parent.name)
    if overlay.switch not in (None, PREFIX + overlay.name.upper()):
        raise _wrong(file, "switch", str(overlay.switch), PREFIX + overlay.name.upper())
    for place in overlay.verified:
        if place not in PLACES:
            raise _wrong(file, "verified", place, "one of " + ", ".join(PLACES))
    for setting in overlay.settings:
        begin = f"{overlay.switch or PREFIX + overlay.name.upper()}_"
        if not setting.name.startswith(begin):
            raise _wrong(file, "[[setting]]", setting.name, f"a name that begins with {begin}")
        if not settings.known(setting.accepts):
            raise _wrong(file, "[[setting]]", f"accepts = {setting.accepts!r}", "flag, pattern, or FROM-TO")
        wanted = settings.expected(setting.accepts, setting.default)
        if wanted:
            raise _wrong(file, "[[setting]]", f"default = {setting.default!r}", wanted)
    for mount in overlay.mounts:
        if not mount.target.startswith("/") or not (file.parent.parent.parent / mount.source).exists():
            raise _wrong(file, "mount", mount.source, "a path of the repository and an absolute target")


def _wrong(file: Path, key: str, seen: str, expected: str) -> Refusal:
    return Refusal(f"{file.parent.name}/overlay.toml: {key}", seen, expected, "See experimental/overlays.py.")
