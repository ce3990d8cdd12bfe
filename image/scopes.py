"""Where in a file an edit may look: the whole file, a function or class by qualified name, or a stretch of text.

Spans are pairs of character offsets that begin and end at line starts.
"""

from __future__ import annotations

import ast
import io
from collections.abc import Iterator
from dataclasses import dataclass

MODULE = "module"

Span = tuple[int, int]


@dataclass(frozen=True)
class Text:
    """A scope in a file that is not Python: from the line holding `start` to the first later line holding `end`."""

    start: str
    end: str

    def __str__(self) -> str:
        return f"text from {self.start!r} to {self.end!r}"


Scope = str | Text


class SourceFile:
    """One file's text with its line table; the syntax tree is read on first use."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lines = list(io.StringIO(text))  # splits at \n alone, as the parser does
        self._offsets = [0]
        for line in self.lines:
            self._offsets.append(self._offsets[-1] + len(line))
        self._definitions: dict[str, list[Span]] | None = None

    def spans(self, scope: Scope) -> list[Span]:
        """Every span of the scope: none when it is gone, several when a name is defined more than once.

        Raises SyntaxError when a named scope is asked of a file that does not parse.
        """
        if isinstance(scope, Text):
            return self._stretch(scope)
        if scope == MODULE:
            return [(0, len(self.text))]
        return self.definitions().get(scope, [])

    def definitions(self) -> dict[str, list[Span]]:
        """Qualified name of every function and class to its spans, decorators included."""
        if self._definitions is None:
            table: dict[str, list[Span]] = {}
            for name, node in _named(ast.parse(self.text), ""):
                first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
                end = node.end_lineno or node.lineno
                table.setdefault(name, []).append((self._offsets[first - 1], self._offsets[end]))
            self._definitions = table
        return self._definitions

    def scope_at(self, offset: int) -> str:
        """The innermost named scope that holds an offset, `module` where none does."""
        best, width = MODULE, len(self.text) + 1
        try:
            table = self.definitions()
        except SyntaxError:
            return MODULE
        for name, spans in table.items():
            for start, end in spans:
                if start <= offset < end and end - start < width:
                    best, width = name, end - start
        return best

    def line_of(self, offset: int) -> int:
        """Line number, counted from 1, of an offset."""
        return self.text.count("\n", 0, offset) + 1

    def _stretch(self, scope: Text) -> list[Span]:
        starts = [index for index, line in enumerate(self.lines) if scope.start in line]
        spans = []
        for first in starts:
            for last in range(first + 1, len(self.lines)):
                if scope.end in self.lines[last]:
                    spans.append((self._offsets[first], self._offsets[last + 1]))
                    break
        return spans


def find(text: str, block: str, span: Span) -> list[Span]:
    """Occurrences of `block` (whole lines) in a span of `text`, each beginning at a line start."""
    found = []
    position = text.find(block, *span)
    while position >= 0:
        if position == 0 or text[position - 1] == "\n":
            found.append((position, position + len(block)))
        position = text.find(block, position + 1, span[1])
    return found


Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def _named(node: ast.AST, prefix: str) -> Iterator[tuple[str, Definition]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Definition):
            name = f"{prefix}{child.name}"
            yield name, child
            yield from _named(child, name + ".")
        else:
            yield from _named(child, prefix)
