"""What a person needs to re-cut a patch that no longer fits: the nearest text, how near, and where it lies."""

from __future__ import annotations

import difflib
import io
import tokenize
from dataclasses import dataclass

from image.scopes import SourceFile, Span


@dataclass(frozen=True)
class Nearest:
    """The most similar stretch of lines: `score` from 0 to 1, its line, its scope and a unified diff."""

    score: float
    line: int
    scope: str
    diff: str
    comments_only: bool

    def __str__(self) -> str:
        note = ", differs in comments or blank lines only" if self.comments_only else ""
        return f"nearest match {self.score:.2f} at line {self.line} in {self.scope}{note}\n{self.diff}"


def nearest(source: SourceFile, anchor: str, span: Span) -> Nearest | None:
    """The stretch inside `span` most like `anchor`; None when nothing is even half alike."""
    wanted = anchor.splitlines(keepends=True)
    first = source.line_of(span[0]) - 1
    lines = source.text[span[0] : span[1]].splitlines(keepends=True)
    matcher = difflib.SequenceMatcher(autojunk=False)
    matcher.set_seq2(anchor)
    best, where = 0.5, (-1, 0)
    for height in sorted({len(wanted), max(1, len(wanted) - 1), len(wanted) + 1}):
        for index in range(max(1, len(lines) - height + 1)):
            matcher.set_seq1("".join(lines[index : index + height]))
            if matcher.real_quick_ratio() > best and matcher.quick_ratio() > best and matcher.ratio() > best:
                best, where = matcher.ratio(), (index, height)
    if where[0] < 0:
        return None
    found = lines[where[0] : where[0] + where[1]]
    diff = "".join(
        line if line.endswith("\n") else line + "\n"
        for line in difflib.unified_diff(wanted, found, "anchor of the patch", "text in the tree", n=1)
    )
    offset = span[0] + sum(len(line) for line in lines[: where[0]])
    same = _tokens(anchor) == _tokens("".join(found)) != ()
    return Nearest(best, first + where[0] + 1, source.scope_at(offset), diff, same)


def _tokens(text: str) -> tuple[str, ...]:
    """The words of a piece of Python without comments and layout; empty when it cannot be read."""
    skipped = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
    words = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type not in skipped:
                words.append(token.string)
    except (tokenize.TokenError, IndentationError):
        # A piece cut out of a file ends inside a bracket or a block: what was read until then is compared.
        pass
    return tuple(words)
