"""Which entries of the expert table a checkpoint tensor can match, without scanning the table.

Installed into the vllm package by the patch `routed-experts-index` (0.30.0).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

Entry = tuple[str, str, int, str]  # parameter, part of the tensor's name, physical expert, shard
_PLACED = re.compile(r"^experts\.(\d+)\.")
_NAMED = re.compile(r"(?<![A-Za-z0-9_])experts\.(\d+)\.")


class ExpertIndex:
    """The table by logical expert number, in its own order, replicas of an expert included."""

    def __init__(self, table: Sequence[Entry]) -> None:
        self._table = list(table)
        self._by_expert: dict[str, list[Entry]] = {}
        # Entries whose name starts otherwise could match any tensor: then nothing may be skipped.
        self._sound = True
        for entry in self._table:
            placed = _PLACED.match(entry[1])
            if placed:
                self._by_expert.setdefault(placed.group(1), []).append(entry)
            elif not entry[1].startswith("experts.") or entry[1][len("experts.")].isdigit():
                self._sound = False

    def candidates(self, tensor: str, fused: bool) -> Sequence[Entry]:
        """The entries to try for a tensor: one expert's, or the whole table where the name does not decide."""
        if fused or not self._sound:
            return self._table
        named = _NAMED.findall(tensor)
        if len(named) != 1 or tensor.count("experts.") != 1:
            return self._table
        return self._by_expert.get(named[0], self._table)
