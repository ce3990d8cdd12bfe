"""The simulated server's tokenizer: pieces of up to six characters, ids in order of first sight, exact both ways."""

from __future__ import annotations

import re

_PIECE = re.compile(r"\s?[A-Za-z]{1,6}|\s?\d{1,3}|\s|[^\sA-Za-z\d]")
TOKENS: dict[int, str] = {}
_IDS: dict[str, int] = {}


def pieces(text: str) -> list[str]:
    """The text in pieces that join to it again."""
    return _PIECE.findall(text)


def token_id(piece: str) -> int:
    """The id of a piece, made on first sight."""
    if piece not in _IDS:
        _IDS[piece] = len(_IDS) + 100
        TOKENS[_IDS[piece]] = piece
    return _IDS[piece]


def tokenize(text: str) -> list[int]:
    """Ids of the text."""
    return [token_id(piece) for piece in pieces(text)]


def detokenize(ids: list[int]) -> str:
    """The text of ids; unknown ids are a word of their own."""
    return "".join(TOKENS.get(number, f" w{number}") for number in ids)
