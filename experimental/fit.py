"""Does an overlay fit a tree of vLLM: the syntax trees of the functions it hooks, by digest.

Positions, comments and docstrings do not count; a changed default, statement or name does. `python3 -m experimental.fit
TREE` prints each hook's digest in that tree, for the `digests` of overlay.toml. Standard library only: this file is
also mounted beside vLLM, where the kit is not.
"""

from __future__ import annotations

import ast
import hashlib
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Misfit:
    """A hooked function that is absent from a tree (`seen` is None) or not one the overlay knows."""

    file: str
    function: str
    seen: str | None

    def __str__(self) -> str:
        return f"{self.file}: {self.function} is " + ("absent" if self.seen is None else f"unknown ({self.seen})")


def digest(source: str, function: str) -> str | None:
    """12 hex digits over the syntax tree of `function` (`name` or `Class.name`; `Class` alone: the class); or None."""
    node: ast.AST = ast.parse(source)
    for part in function.split("."):
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        found = [child for child in ast.iter_child_nodes(node) if isinstance(child, kinds) and child.name == part]
        if len(found) != 1:
            return None
        node = found[0]
    for inner in ast.walk(node):
        if isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and ast.get_docstring(inner):
            inner.body = inner.body[1:]
    return hashlib.sha256(_shape(node).encode()).hexdigest()[:12]


def _shape(node: object) -> str:
    """The tree as text, the same for every CPython: fields that are empty are left out, as they come and go."""
    if isinstance(node, ast.AST):
        fields = ((name, getattr(node, name, None)) for name in node._fields)
        shown = ",".join(f"{name}={_shape(value)}" for name, value in fields if value not in (None, []))
        return f"{type(node).__name__}({shown})"
    if isinstance(node, list):
        return "[" + ",".join(map(_shape, node)) + "]"
    return repr(node)


def misfits(tree: Path, hooks: tuple[tuple[str, str, tuple[str, ...]], ...]) -> tuple[Misfit, ...]:
    """The hooks (file, function, digests) that do not fit the tree whose folder `vllm` lies in `tree`."""
    out = []
    for file, function, digests in hooks:
        path = tree / file
        seen = digest(path.read_text(), function) if path.is_file() else None
        if seen is None or seen not in digests:
            out.append(Misfit(file, function, seen))
    return tuple(out)


def main(arguments: list[str]) -> int:
    """Print the digest of every hook of every overlay in a tree."""
    from experimental.overlays import read_all

    if len(arguments) != 1 or not (Path(arguments[0]) / "vllm").is_dir():
        print("usage: python3 -m experimental.fit TREE, the folder that holds vllm/ (site-packages)", file=sys.stderr)
        return 2
    (tree,) = arguments
    for overlay in read_all():
        for hook in overlay.hooks:
            path = Path(tree) / hook.file
            seen = digest(path.read_text(), hook.function) if path.is_file() else None
            print(f"{overlay.name}  {hook.file}  {hook.function}  {seen}  {'known' if seen in hook.digests else 'NEW'}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
