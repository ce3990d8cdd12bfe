"""What is refused before anything loads, whatever the memory: settings known to corrupt, die late or wedge a box."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from core.refusal import Refusal, Refusals
from core.row import Row
from entrypoint.serve.speculation import DEFAULT_TOKENS
from entrypoint.sizing.fit import Choice, Fixed
from entrypoint.sizing.knobs import GPU_CEILING

Get = Callable[[str, Any], Any]
MOE_OVERLAYS = ("megamoe", "moe_decode", "moe_prefill")
TIGHT = "or set ALLOW_TIGHT=1 to start all the same"


@dataclass(frozen=True)
class Danger:
    """A setting that is refused unless ALLOW_TIGHT=1, with the reason shown in both cases."""

    name: str
    found: Callable[[Get, Sequence[str]], str | None]
    expected: str
    cure: str


def _gpu_share(get: Get, overlays: Sequence[str]) -> str | None:
    share = get("GPU_MEM_UTIL", GPU_CEILING)
    return f"{share:g}" if share > GPU_CEILING else None


def _packed_fp8(get: Get, overlays: Sequence[str]) -> str | None:
    return "fp8" if get("KV_CACHE_DTYPE", "fp8_e4m3") == "fp8" else None


def _draft_width(get: Get, overlays: Sequence[str]) -> str | None:
    method = get("SPEC_METHOD", "dflash")
    width = int(get("SPEC_TOKENS", None) or DEFAULT_TOKENS[method])
    return str(width) if method == "dflash" and width != DEFAULT_TOKENS[method] else None


def _moe_backend(get: Get, overlays: Sequence[str]) -> str | None:
    backend = get("MOE_BACKEND", "flashinfer_cutlass")
    mounted = [name for name in overlays if name in MOE_OVERLAYS]
    return f"{backend} with {', '.join(mounted)}" if mounted and backend != "flashinfer_cutlass" else None


DANGERS: tuple[Danger, ...] = (
    Danger(
        "GPU_MEM_UTIL",
        _gpu_share,
        f"at most {GPU_CEILING} (0.90 is reported to pass start-up and to wedge the box hours later)",
        f"Set GPU_MEM_UTIL={GPU_CEILING}",
    ),
    Danger(
        "KV_CACHE_DTYPE",
        _packed_fp8,
        "fp8_e4m3 (fp8 picks a packed layout that this model lacks; the engine dies after the weight load)",
        "Set KV_CACHE_DTYPE=fp8_e4m3",
    ),
    Danger(
        "SPEC_TOKENS",
        _draft_width,
        "7 with SPEC_METHOD=dflash (the drafter was trained for exactly that)",
        "Leave SPEC_TOKENS unset",
    ),
    Danger(
        "MOE_BACKEND",
        _moe_backend,
        "flashinfer_cutlass (the MoE overlays read its processed tensors)",
        "Set MOE_BACKEND=flashinfer_cutlass or leave the overlay out with --without",
    ),
)


def dangers(get: Get, overlays: Sequence[str], *, allowed: bool) -> tuple[tuple[Refusal, ...], tuple[Row, ...]]:
    """(refusals, rows): every danger found is a refusal, or a loud row when `allowed`."""
    refusals, rows = [], []
    for danger in DANGERS:
        seen = danger.found(get, overlays)
        if seen is None:
            continue
        if allowed:
            rows.append(Row(danger.name, "WARN", seen, danger.expected, danger.cure + " (ALLOW_TIGHT=1 lets it pass)"))
        else:
            refusals.append(Refusal(danger.name, seen, danger.expected, f"{danger.cure}, {TIGHT}."))
    return tuple(refusals), tuple(rows)


def shape(choice: Choice, fixed: Fixed, block: int, get: Get) -> None:
    """Refuse numbers that vLLM itself would refuse after loading. Raises Refusals."""
    refusals = []
    context = fixed.model["target.context"]
    if choice.max_len > context:
        cure = f"Set MAX_MODEL_LEN={context} or less."
        refusals.append(Refusal("MAX_MODEL_LEN", str(choice.max_len), f"at most {context}, the model's own", cure))
    if choice.batch < block:
        expected = f"at least {block}, the effective block: a KDA state is saved at block ends only"
        cure = f"Set MAX_NUM_BATCHED_TOKENS={block} or more, or a smaller BLOCK_SIZE."
        refusals.append(Refusal("MAX_NUM_BATCHED_TOKENS", str(choice.batch), expected, cure))
    elif choice.batch < choice.seqs * (1 + fixed.spec_tokens):
        most = choice.batch // (1 + fixed.spec_tokens)
        expected = f"at most {most}: each takes {1 + fixed.spec_tokens} tokens of a step of {choice.batch}"
        refusals.append(Refusal("MAX_NUM_SEQS", str(choice.seqs), expected, f"Set MAX_NUM_SEQS={most} or less."))
    if choice.cap > choice.batch:
        expected = f"at most {choice.batch}, the tokens of a step"
        cure = f"Set LONG_PREFILL_TOKEN_THRESHOLD={choice.batch // block * block}."
        refusals.append(Refusal("LONG_PREFILL_TOKEN_THRESHOLD", str(choice.cap), expected, cure))
    reserve = get("DECODE_RESERVE_TOKENS", None)
    if reserve is not None and not 0 <= reserve < choice.batch:
        expected = f"0 or more and below {choice.batch}, the tokens of a step"
        refusals.append(Refusal("DECODE_RESERVE_TOKENS", str(reserve), expected, "Leave DECODE_RESERVE_TOKENS unset."))
    if refusals:
        raise Refusals(tuple(refusals))
