"""Patches as declared data, and the engine that checks, applies and removes them.

An edit is an anchor that must match exactly once inside its scope, and the text that replaces it. What a tree holds
is read from its text alone: no marker, no record is left in it. Every patch is judged in memory before a byte is
written; writing is all or nothing; applying twice changes nothing; removing restores every byte.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from core.refusal import Refusal
from image.nearest import nearest
from image.scopes import MODULE, Scope, SourceFile, Span, find

State = Literal["needed", "applied", "fixed upstream", "not applicable", "unverifiable here", "drift"]


@dataclass(frozen=True)
class Edit:
    """Replace `anchor` by `replacement`, both whole lines, inside `scope` of `file` (relative to site-packages)."""

    file: str
    scope: Scope
    anchor: str
    replacement: str

    def __post_init__(self) -> None:
        for text in (self.anchor, self.replacement):
            if not text.endswith("\n") or "\r" in text:
                raise AssertionError(f"an edit of {self.file} is not made of whole lines")
        if self.anchor == self.replacement:
            raise AssertionError(f"an edit of {self.file} changes nothing")


@dataclass(frozen=True)
class Addition:
    """A file that is not in the base: `file` in the tree gets the bytes of `source` (relative to image/)."""

    file: str
    source: str

    def content(self) -> bytes:
        """The bytes to install."""
        return (Path(__file__).parent / self.source).read_bytes()


@dataclass(frozen=True)
class Witness:
    """Text whose presence in `scope` of `file` proves something; an empty text asks for the scope alone."""

    file: str
    scope: Scope
    text: str = ""


@dataclass(frozen=True)
class Variant:
    """One shape of a patch; `label` names the trees it was cut for."""

    label: str
    edits: tuple[Edit, ...]
    additions: tuple[Addition, ...] = ()


@dataclass(frozen=True)
class Patch:
    """One change to the base.

    why        what goes wrong without it
    upstream   issue or pull request of the package, or where its absence was read
    origin     where the idea comes from, with its licence; the text is ours
    variants   exactly one must fit a tree that needs the patch
    fixed      witnesses that upstream does it itself (any one is enough)
    foreign    witnesses that the tree has no place for it (any one is enough)
    package    top-level package it edits; a tree without it cannot be judged
    expected   version of `package` -> state of the clean tree, as we saw it
    """

    name: str
    title: str
    why: str
    upstream: str
    origin: str
    variants: tuple[Variant, ...]
    fixed: tuple[Witness, ...] = ()
    foreign: tuple[Witness, ...] = ()
    package: str = "vllm"
    expected: Mapping[str, State] = field(default_factory=dict)


@dataclass(frozen=True)
class Verdict:
    """How one patch stands on one tree. `reasons` explain a drift, each naming file and scope.

    `declared` is what the patch expects of this version of its package, None where it says nothing.
    """

    patch: Patch
    state: State
    variant: Variant | None = None
    reasons: tuple[str, ...] = ()
    declared: State | None = None


@dataclass(frozen=True)
class Report:
    """All verdicts of a tree, and the version of each package that was found in it."""

    verdicts: tuple[Verdict, ...]
    versions: Mapping[str, str]

    @property
    def drifted(self) -> tuple[Verdict, ...]:
        """The verdicts that forbid applying or removing anything."""
        return tuple(verdict for verdict in self.verdicts if verdict.state == "drift")


class Tree:
    """An unpacked site-packages folder, read lazily; nothing is written through it but by `write`."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self._files: dict[str, SourceFile | str | None] = {}
        self._instead: Mapping[str, bytes | None] = {}

    def holding(self, result: Mapping[str, bytes | None]) -> Tree:
        """This tree as it would be with `result` written, in memory only."""
        other = Tree(self.root)
        other._instead = result
        return other

    def added(self, file: str) -> bytes | str | None:
        """The bytes of a file that patches add; None when it is not there; a sentence when it may not be touched."""
        path = self.root / file
        if file in self._instead:
            return self._instead[file]
        if not path.exists() and not path.is_symlink():
            return None
        if path.is_symlink() or path.resolve() != path or not path.is_file():
            return f"{file} is not a plain file"
        return path.read_bytes()

    def has(self, package: str) -> bool:
        """Whether a top-level package is in this tree."""
        return (self.root / package).is_dir()

    def read(self, file: str) -> SourceFile | str | None:
        """The file's text; None when it is gone; a sentence when it may not be edited."""
        if file not in self._files:
            self._files[file] = self._load(file)
        return self._files[file]

    def _load(self, file: str) -> SourceFile | str | None:
        if file in self._instead:
            return SourceFile((self._instead[file] or b"").decode())
        path = self.root / file
        if not path.is_file():
            return f"{file} is a dangling link" if path.is_symlink() else None
        if path.resolve() != path:
            outside = not path.resolve().is_relative_to(self.root)
            return f"{file} is a link{' out of the tree' if outside else ''} to {path.resolve()}"
        data = path.read_bytes()
        if b"\r" in data:
            return f"{file} has CRLF line ends; the base has LF"
        try:
            return SourceFile(data.decode())
        except UnicodeDecodeError as error:
            return f"{file} is not UTF-8 ({error.reason} at byte {error.start})"

    def version(self, package: str) -> str:
        """The package's own version from its _version.py, local part cut; empty where it has none."""
        for name in ("_version.py", "version.py", "_build_meta.py"):
            path = self.root / package / name
            if path.is_file():
                match = re.search(r"^__version__\s*=.*?['\"]([^'\"+]+)", path.read_text(errors="replace"), re.M)
                if match:
                    return match.group(1)
        return ""


# --- judging -----------------------------------------------------------------------------------------------------


def check(tree: Tree, patches: Sequence[Patch]) -> Report:
    """Judge every patch on a tree. Reads only. Two patches that would edit the same lines are a drift of both."""
    verdicts = [judge(tree, patch) for patch in patches]
    _refuse_overlaps(tree, verdicts)
    packages = sorted({patch.package for patch in patches})
    return Report(tuple(verdicts), {name: tree.version(name) for name in packages if tree.has(name)})


def judge(tree: Tree, patch: Patch) -> Verdict:
    """How one patch stands on a tree."""
    if not tree.has(patch.package):
        return Verdict(patch, "unverifiable here", reasons=(f"no {patch.package} in this tree",))
    declared = patch.expected.get(tree.version(patch.package))
    for variant in patch.variants:
        state = _fit(tree, variant)
        if state == "needed" and declared in ("fixed upstream", "not applicable"):
            reason = f"declared {declared!r} for this version, but the anchors of {variant.label!r} fit"
            return Verdict(patch, "drift", variant, (reason,), declared)
        if state is not None:
            return Verdict(patch, state, variant, (), declared)
    if any(_holds(tree, witness) for witness in patch.fixed):
        return Verdict(patch, "fixed upstream", None, (), declared)
    if any(_holds(tree, witness) for witness in patch.foreign):
        return Verdict(patch, "not applicable", None, (), declared)
    variant = max(patch.variants, key=lambda variant: _score(tree, variant))
    return Verdict(patch, "drift", variant, tuple(_explain(tree, variant)), declared)


def _holds(tree: Tree, witness: Witness) -> bool:
    source = tree.read(witness.file)
    if not isinstance(source, SourceFile):
        return False
    try:
        spans = source.spans(witness.scope)
    except SyntaxError:
        return False
    return any(not witness.text or find(source.text, witness.text, span) for span in spans)


Part = Edit | Addition


def _parts(variant: Variant) -> tuple[Part, ...]:
    return (*variant.edits, *variant.additions)


def _fit(tree: Tree, variant: Variant) -> State | None:
    """`needed` or `applied` when every part agrees on it, else None."""
    states = {_part_state(tree, part) for part in _parts(variant)}
    if states == {"needed"}:
        return "needed"
    return "applied" if states == {"applied"} else None


def _score(tree: Tree, variant: Variant) -> tuple[int, int]:
    """How near a variant is to the tree: its files that exist, then its parts that fit."""
    files = sum(isinstance(tree.read(edit.file), SourceFile) for edit in variant.edits)
    return files, sum(_part_state(tree, part) != "drift" for part in _parts(variant))


def _explain(tree: Tree, variant: Variant) -> list[str]:
    """Why a variant does not fit, a reason a part."""
    states = [_part_state(tree, part) for part in _parts(variant)]
    if "drift" not in states:
        done = states.count("applied")
        return [f"half applied: {done} of {len(states)} parts are in the tree; restore the base and apply again"]
    reasons = []
    for part, state in zip(_parts(variant), states, strict=True):
        if state == "drift":
            reasons.append(_explain_edit(tree, part) if isinstance(part, Edit) else _explain_addition(tree, part))
    return reasons


def _part_state(tree: Tree, part: Part) -> str:
    """`needed`, `applied` or `drift` of one edit or one added file."""
    if isinstance(part, Addition):
        present = tree.added(part.file)
        if present is None:
            return "needed"
        return "applied" if present == part.content() else "drift"
    source = tree.read(part.file)
    if not isinstance(source, SourceFile):
        return "drift"
    try:
        spans = source.spans(part.scope)
    except SyntaxError:
        return "drift"
    clean, done = places(source, part, spans)
    if len(clean) + len(done) != 1:
        return "drift"
    return "needed" if clean else "applied"


def _explain_addition(tree: Tree, addition: Addition) -> str:
    present = tree.added(addition.file)
    if isinstance(present, str):
        return present
    return f"{addition.file} exists with another content than this kit installs"


def _explain_edit(tree: Tree, edit: Edit) -> str:
    source = tree.read(edit.file)
    if source is None:
        return f"{edit.file} is gone{_namesakes(tree, edit.file)}"
    if isinstance(source, str):
        return source
    try:
        spans = source.spans(edit.scope)
    except SyntaxError as error:
        return f"{edit.file} does not parse (line {error.lineno}: {error.msg})"
    if not spans:
        close = nearest(source, edit.anchor, (0, len(source.text)))
        return f"{edit.file}: scope {edit.scope} is gone; {close or 'nothing in the file is like the anchor'}"
    where = f"{edit.file}, scope {edit.scope}"
    clean, done = places(source, edit, spans)
    if clean or done:
        lines = ", ".join(str(source.line_of(span[0])) for span in sorted(clean + done))
        return f"{where}: {len(clean)} anchors and {len(done)} replacements, at lines {lines}; expected one"
    elsewhere = find(source.text, edit.anchor, (0, len(source.text)))
    if elsewhere:
        there = ", ".join(f"{source.scope_at(span[0])} line {source.line_of(span[0])}" for span in elsewhere)
        return f"{where}: the anchor moved out of its scope, to {there}"
    close = max(
        (found for span in spans if (found := nearest(source, edit.anchor, span))),
        key=lambda found: found.score,
        default=None,
    )
    return f"{where}: the anchor is gone; {close or 'nothing in the scope is like it'}"


def places(source: SourceFile, edit: Edit, spans: Sequence[Span]) -> tuple[list[Span], list[Span]]:
    """Where the anchor stands and where the replacement stands; one inside the other counts as the outer one."""
    anchors = [found for span in spans for found in find(source.text, edit.anchor, span)]
    replaced = [found for span in spans for found in find(source.text, edit.replacement, span)]
    clean = [span for span in anchors if not any(_inside(span, other) for other in replaced)]
    done = [span for span in replaced if not any(_inside(span, other) for other in anchors)]
    return sorted(set(clean)), sorted(set(done))


def _inside(span: Span, other: Span) -> bool:
    return other[0] <= span[0] and span[1] <= other[1] and span != other


def _namesakes(tree: Tree, file: str) -> str:
    """Files of the same name elsewhere in the package: upstream moves modules more often than it deletes them."""
    package, name = file.split("/")[0], Path(file).name
    found = sorted(str(path.relative_to(tree.root)) for path in (tree.root / package).rglob(name))
    return f"; files of that name: {', '.join(found[:4])}" if found else ""


def _refuse_overlaps(tree: Tree, verdicts: list[Verdict]) -> None:
    """Edits must not touch each other's lines, or removing one alone could not restore the base."""
    taken: list[tuple[str, Span, int]] = []
    for index, verdict in enumerate(verdicts):
        if verdict.variant is None or verdict.state not in ("needed", "applied"):
            continue
        for edit in verdict.variant.edits:
            span = _place(tree, edit)
            for file, other, owner in taken:
                if file == edit.file and span[0] < other[1] and other[0] < span[1]:
                    both = f"{verdicts[owner].patch.name} and {verdict.patch.name} edit the same lines of {file}"
                    for at in {owner, index}:
                        verdicts[at] = Verdict(verdicts[at].patch, "drift", verdicts[at].variant, (both,))
            taken.append((edit.file, span, index))


def _place(tree: Tree, edit: Edit) -> Span:
    source = tree.read(edit.file)
    assert isinstance(source, SourceFile)
    clean, done = places(source, edit, source.spans(edit.scope))
    return (clean + done)[0]


# --- writing -----------------------------------------------------------------------------------------------------


def changes(tree: Tree, report: Report, *, remove: bool = False) -> dict[str, bytes | None]:
    """File -> new content (None: delete) that applies, or removes, every patch of a report without drift.

    Raises Refusal when a patch drifted: then nothing may be written.
    """
    if report.drifted:
        names = ", ".join(verdict.patch.name for verdict in report.drifted)
        raise Refusal("patches", f"drift in {names}", "a tree every patch fits", "See docs/rebasing.md.")
    wanted: State = "applied" if remove else "needed"
    splices: dict[str, list[tuple[Span, str]]] = {}
    result: dict[str, bytes | None] = {}
    for verdict in report.verdicts:
        if verdict.state != wanted or verdict.variant is None:
            continue
        for edit in verdict.variant.edits:
            text = edit.anchor if remove else edit.replacement
            splices.setdefault(edit.file, []).append((_place(tree, edit), text))
        for addition in verdict.variant.additions:
            result[addition.file] = None if remove else addition.content()
    for file, parts in splices.items():
        source = tree.read(file)
        assert isinstance(source, SourceFile)
        text = source.text
        for (start, end), new in sorted(parts, reverse=True):
            text = text[:start] + new + text[end:]
        if file.endswith(".py"):
            compile(text, file, "exec")
        result[file] = text.encode()
    _confirm(tree.holding(result), report, wanted)
    return result


def _confirm(after: Tree, report: Report, wanted: State) -> None:
    """Every patch that was to change must have changed, and no other: edits that disturb each other are our defect."""
    reached = {"needed": "applied", "applied": "needed"}[wanted]
    for verdict in report.verdicts:
        expected = reached if verdict.state == wanted else verdict.state
        found = judge(after, verdict.patch)
        if found.state != expected:
            reasons = "; ".join(found.reasons)
            raise AssertionError(f"{verdict.patch.name} would be {found.state!r}, not {expected!r}: {reasons}")


def write(tree: Tree, result: Mapping[str, bytes | None]) -> None:
    """Put all files in place, or none: each is written beside its place first, then renamed; a failure is undone.

    Raises Refusal when a place is not writable, before anything is changed.
    """
    for file in result:
        path = tree.root / file
        for place in (path, path.parent) if path.exists() else (path.parent,):
            if not place.stat().st_mode & 0o200 or not os.access(place, os.W_OK):
                raise Refusal("patches", f"{place} is read-only", "a tree that may be written", f"chmod u+w {place}")
    before = {file: (tree.root / file).read_bytes() if (tree.root / file).exists() else None for file in result}
    fresh: dict[str, Path] = {}
    done: list[str] = []
    try:
        for file, content in result.items():
            if content is not None:
                fresh[file] = _beside(tree.root / file, content)
        for file, content in result.items():
            if content is None:
                (tree.root / file).unlink()
            else:
                fresh[file].replace(tree.root / file)
            done.append(file)
    except OSError:
        for file in reversed(done):
            old = before[file]
            if old is None:
                (tree.root / file).unlink(missing_ok=True)
            else:
                _beside(tree.root / file, old).replace(tree.root / file)
        raise
    finally:
        for path in fresh.values():
            path.unlink(missing_ok=True)


def _beside(path: Path, content: bytes) -> Path:
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".glm53-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(path.stat().st_mode & 0o777 if path.exists() else 0o644)
    except OSError:
        Path(name).unlink()
        raise
    return Path(name)


__all__ = [
    "MODULE", "Addition", "Edit", "Patch", "Report", "State", "Tree", "Variant", "Verdict", "Witness",
    "changes", "check", "judge", "places", "write",
]  # fmt: skip
