"""A patch as declared data: edits and added files in variants, witnesses, the states we expect, and a verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from image.scopes import Scope

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
