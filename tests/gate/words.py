"""The simulated server's tokenizer: pieces of up to six characters, ids from a hash, the same in every process."""

from __future__ import annotations

import hashlib
import re
from functools import cache

_PIECE = re.compile(r"\s?[A-Za-z]{1,6}|\s?\d{1,3}|\s|[^\sA-Za-z\d]")
TOKENS: dict[int, str] = {}


def pieces(text: str) -> list[str]:
    """The text in pieces that join to it again."""
    return _PIECE.findall(text)


@cache
def token_id(piece: str) -> int:
    """The id of a piece: 48 bits of its hash, so that two pieces never meet in a test."""
    number = int.from_bytes(hashlib.blake2b(piece.encode("utf-8", "surrogatepass"), digest_size=6).digest())
    TOKENS[number] = piece
    return number


def tokenize(text: str) -> list[int]:
    """Ids of the text."""
    return [token_id(piece) for piece in pieces(text)]


def detokenize(ids: list[int]) -> str:
    """The text of ids; unknown ids are a word of their own."""
    return "".join(TOKENS.get(number, f" w{number}") for number in ids)
