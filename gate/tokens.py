"""Prompts of an exact number of tokens that share no prefix: random ids from a pool of ordinary words.

The first eight ids spell the prompt's tag, so two tags differ within the first cache page whatever its size. (Seeding
by one number alone let two prompts of different lengths share a prefix elsewhere, and a cached prompt passed for a
cold one: reported.)
"""

from __future__ import annotations

import hashlib
import random

from client.openai import Client
from client.reply import ClientError

WORDS = (
    "anchor barrel candle dredge ember ferry gannet harbour island jetty kelp lantern mooring netting oyster "
    "pilot quarry rudder signal timber upland vessel winter yonder zenith autumn bright copper distant evening"
)
_SYLLABLES = (
    "ba",
    "ko",
    "mi",
    "ter",
    "lan",
    "du",
    "ver",
    "sol",
    "pra",
    "nek",
    "gul",
    "hod",
    "fim",
    "wes",
    "jor",
    "zal",
)
LEAST = 64


class Pool:
    """Token ids that are safe anywhere in a prompt."""

    def __init__(self, ids: list[int]) -> None:
        self.ids = sorted(set(ids))

    @classmethod
    async def of(cls, client: Client) -> Pool:
        """Ask the server's tokenizer. Raises ClientError where there is no /tokenize or too few distinct tokens."""
        draw = random.Random(1)
        made = " ".join("".join(draw.choice(_SYLLABLES) for _ in range(3)) for _ in range(400))
        found = (await client.tokenize(f" {WORDS} {made}", add_special_tokens=False))["tokens"]
        pool = cls([int(token) for token in found])
        if len(pool.ids) < 4:
            raise ClientError("bad", f"{client.root}/tokenize gave {len(pool.ids)} different tokens")
        return pool

    def prompt(self, count: int, tag: str) -> list[int]:
        """`count` ids; the same for the same tag, sharing no prefix of LEAST tokens with another tag."""
        digits = int.from_bytes(hashlib.blake2b(tag.encode(), digest_size=8).digest())
        base = len(self.ids)
        head: list[int] = []
        while digits and len(head) < LEAST:
            digits, digit = divmod(digits, base)
            head.append(self.ids[digit])
        draw = random.Random(f"{tag}/{count}")
        return (head + draw.choices(self.ids, k=max(0, count - len(head))))[:count]
