"""What drafts tokens: dflash with exactly 7, mtp with 4 unless said, or nothing. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from core.refusal import Refusal

DFLASH_TOKENS = 7  # what DFlash2 was trained for
# Drafted tokens a step, by method, where nobody says otherwise.
DEFAULT_TOKENS = {"dflash": DFLASH_TOKENS, "mtp": 4, "none": 0}
KIT_FIELDS = ("method", "model", "num_speculative_tokens")


@dataclass(frozen=True)
class Speculation:
    """`tokens` drafted a step; 0 with method none. `extra`: further fields of vLLM's speculative config."""

    method: str
    tokens: int
    extra: Mapping[str, Any]

    @property
    def needs_drafter(self) -> bool:
        """True when a drafter's checkpoint must be on every box."""
        return self.method == "dflash"

    def config(self, drafter: str) -> dict[str, Any] | None:
        """vLLM's --speculative-config, or None without speculation. `drafter`: its path as the engine sees it."""
        if self.method == "none":
            return None
        model = {"model": drafter} if self.needs_drafter else {}
        return {"method": self.method, **model, "num_speculative_tokens": self.tokens, **self.extra}


def speculation(
    method: str, tokens: int | None, mtp: bool, extra: Mapping[str, Any] | None, chosen: bool = True
) -> Speculation:
    """The speculation that SPEC_METHOD, SPEC_TOKENS, MTP and SPEC_EXTRA ask for.

    `chosen`: somebody set SPEC_METHOD (its default does not contradict MTP=1). Raises Refusal.
    """
    if mtp and method != "mtp":
        if chosen:
            raise Refusal("MTP", f"1 with SPEC_METHOD={method}", "one of the two", "Leave MTP unset in compose/.env.")
        method = "mtp"
    tokens = DEFAULT_TOKENS[method] if tokens is None else tokens
    if method == "dflash" and tokens != DFLASH_TOKENS:
        raise Refusal(
            "SPEC_TOKENS",
            str(tokens),
            f"{DFLASH_TOKENS} with SPEC_METHOD=dflash: the drafter proposes exactly that many",
            "Leave SPEC_TOKENS unset, or set SPEC_METHOD=mtp.",
        )
    if method == "none" and tokens:
        raise Refusal("SPEC_TOKENS", str(tokens), "unset with SPEC_METHOD=none", "Leave SPEC_TOKENS unset.")
    taken = sorted(set(extra or {}) & set(KIT_FIELDS))
    if taken:
        raise Refusal(
            "SPEC_EXTRA",
            f"the field {taken[0]}",
            "fields other than " + ", ".join(KIT_FIELDS),
            "Use SPEC_METHOD, DFLASH_MODEL and SPEC_TOKENS for those.",
        )
    if extra and method == "none":
        raise Refusal("SPEC_EXTRA", "set", "unset with SPEC_METHOD=none", "Leave SPEC_EXTRA unset.")
    return Speculation(method, tokens, dict(extra or {}))
