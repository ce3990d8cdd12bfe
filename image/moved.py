"""Where upstream may have put a file that is gone: modules are moved and renamed more often than deleted."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from pathlib import Path

from image.patch import Edit
from image.scopes import MODULE, SourceFile, Text, find
from image.tree import Tree

SHOWN = 4


def whereabouts(tree: Tree, edit: Edit) -> str:
    """What follows "... is gone": where the anchor stands, else where the scope is defined, else files of that name.

    Reads every file of the package with that suffix, which takes a second; only a drift asks for it.
    """
    texts = tree.texts(edit.file.split("/")[0], Path(edit.file).suffix)
    anchors = {file: found for file, text in texts.items() if (found := find(text, edit.anchor, (0, len(text))))}
    if anchors:
        places = []
        for file in _likest(edit.file, anchors):
            source = SourceFile(texts[file])
            places += [f"{file} ({source.scope_at(start)}, line {source.line_of(start)})" for start, _ in anchors[file]]
        return f"; its anchor stands in {_listed(places)}"
    defined = _definition(edit)
    if defined is not None:
        files = [file for file, text in texts.items() if defined.search(text)]
        if files:
            return f"; {edit.scope} is in {_listed(_likest(edit.file, files))}"
    namesakes = [file for file in texts if Path(file).name == Path(edit.file).name]
    return f"; files of that name: {_listed(_likest(edit.file, namesakes))}" if namesakes else ""


def _definition(edit: Edit) -> re.Pattern[str] | None:
    """What begins the scope: a class or function, of a method its class. None where it has no name."""
    if isinstance(edit.scope, Text):
        return re.compile(f"^.*{re.escape(edit.scope.start)}", re.MULTILINE)
    if edit.scope == MODULE:
        return None
    return re.compile(rf"^\s*(?:async def|def|class) {re.escape(edit.scope.split('.')[0])}\b", re.MULTILINE)


def _likest(wanted: str, files: Iterable[str]) -> list[str]:
    """Files by how alike their paths are to the one that is gone."""
    return sorted(files, key=lambda file: (-difflib.SequenceMatcher(None, wanted, file).ratio(), file))


def _listed(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if names[SHOWN:] else "")
