"""How a product for few tokens is cut, for the kernels that share K between warps (dense_w4, dense_fp8)."""

from __future__ import annotations

from dataclasses import dataclass

from experimental.launch import INTERPRETED

# Token counts that stand for all up to them: one compiled kernel each.
TOKEN_STEPS = (8, 16, 32, 64)


@dataclass(frozen=True)
class Shape:
    """Warps that share K and rows, groups of 8 rows a warp, chunks of k (128 of 4-bit, 64 of 8-bit weights) a step."""

    k_warps: int
    row_warps: int
    rows: int
    chunks: int
    overlap: bool = True

    @property
    def program_rows(self) -> int:
        """Rows of w a program takes; w's rows are padded to a multiple of it."""
        return 8 * self.rows * self.row_warps

    @property
    def warps(self) -> int:
        """Warps of a program."""
        return self.k_warps * self.row_warps

    def constants(self, tiles: int) -> tuple[tuple[str, int | bool], ...]:
        """The kernel's constants for a number of token tiles."""
        return (
            ("K_WARPS", self.k_warps),
            ("ROW_WARPS", self.row_warps),
            ("R", self.rows),
            ("TILES", tiles),
            ("CHUNKS", self.chunks),
            ("OVERLAP", self.overlap),
            ("FAST", not INTERPRETED),
        )


def tiles_for(tokens: int) -> int:
    """Groups of 8 tokens, a power of two: 1, 2, 4 or 8."""
    return max(1, 1 << (-(-tokens // 8) - 1).bit_length())
