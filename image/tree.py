"""An unpacked site-packages folder as patches see it: text or the reason why a file may not be edited. Reads only."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from image.scopes import SourceFile


class Tree:
    """An unpacked site-packages folder, read lazily."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self._files: dict[str, SourceFile | str | None] = {}
        self._texts: dict[tuple[str, str], Mapping[str, str]] = {}
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

    def texts(self, package: str, suffix: str) -> Mapping[str, str]:
        """Path -> text of every file of a package with that suffix; kept, since a drift looks into all of them."""
        key = (package, suffix)
        if key not in self._texts:
            files = sorted(path for path in (self.root / package).rglob(f"*{suffix}") if path.is_file())
            self._texts[key] = {str(path.relative_to(self.root)): path.read_text(errors="replace") for path in files}
        return self._texts[key]

    def version(self, package: str) -> str:
        """The package's own version from its _version.py, local part cut; empty where it has none."""
        for name in ("_version.py", "version.py", "_build_meta.py"):
            path = self.root / package / name
            if path.is_file():
                match = re.search(r"^__version__\s*=.*?['\"]([^'\"+]+)", path.read_text(errors="replace"), re.M)
                if match:
                    return match.group(1)
        return ""
