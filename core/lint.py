"""Names that are almost a knob: what a typo in compose/.env, in the shell or in a container's environment looks like.

A misspelt knob is worse than a bad value: it is silently not set. Values are never shown: a typo of
API_KEY holds a secret.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from core.elsewhere import KINDS, Elsewhere, elsewhere, switch_of_the_original
from core.refusal import Refusal

# Shorter knobs (TP, MTP, ROLE...) are one letter from too many names that are somebody else's.
LONG_ENOUGH = 5
# What Docker, Compose and Hugging Face read from .env themselves.
FOREIGN_IN_DOTENV = ("COMPOSE_", "DOCKER_", "HF_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")


def one_edit_apart(left: str, right: str) -> bool:
    """True when one inserted, dropped, changed or swapped letter makes `left` into `right`."""
    if left == right or abs(len(left) - len(right)) > 1:
        return False
    if len(left) > len(right):
        left, right = right, left
    start = next((i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), len(left))
    if len(left) < len(right):
        return left[start:] == right[start + 1 :]
    swapped = left[:start] + left[start : start + 2][::-1] + left[start + 2 :]
    return left[start + 1 :] == right[start + 1 :] or swapped == right


def misspelt(environ: Mapping[str, str], knobs: Collection[str]) -> tuple[Refusal, ...]:
    """A refusal for every set name that is no knob but one letter from a knob of LONG_ENOUGH letters or more."""
    near = {name: _near(name, knobs, LONG_ENOUGH) for name in sorted(environ) if environ[name] and name not in knobs}
    return tuple(_refusal(name, knob) for name, knob in near.items() if knob)


def unknown(names: Collection[str], knobs: Collection[str], place: str = "compose/.env") -> tuple[Refusal, ...]:
    """A refusal for every name of `place` that nothing would read, with what to do instead where that is known."""
    found = []
    for name in sorted(names):
        line = elsewhere(name)
        if name in knobs or (name.upper().startswith(FOREIGN_IN_DOTENV) and not line):
            continue
        near = name.upper() if name.upper() in knobs else _near(name.upper(), knobs, 2)
        # A catch-all says less than the knob one letter away.
        known = line if line and not (near and line.name.endswith("*")) else None
        found.append(_explained(name, known) if known else _refusal(name, near, place))
    return tuple(found)


def without_effect(environ: Mapping[str, str], knobs: Collection[str]) -> tuple[Refusal, ...]:
    """A refusal for every set switch of the original's overlays: an environment that holds one means it."""
    lines = {name: switch_of_the_original(name) for name in sorted(environ) if environ[name] and name not in knobs}
    return tuple(_explained(name, line) for name, line in lines.items() if line)


def _explained(name: str, line: Elsewhere) -> Refusal:
    cure = f"{line.cure[:1].upper()}{line.cure[1:]}"
    return Refusal(name, KINDS[line.kind], "a knob of KNOBS.md", cure if cure.endswith(".") else f"{cure}.")


def _near(name: str, knobs: Collection[str], shortest: int) -> str | None:
    return next((knob for knob in sorted(knobs) if len(knob) >= shortest and one_edit_apart(name, knob)), None)


def _refusal(name: str, near: str | None, place: str = "the environment") -> Refusal:
    if near is None:
        return Refusal(name, "a name that nothing reads", "a knob of KNOBS.md", f"Remove {name} from {place}.")
    return Refusal(name, "a name that nothing reads", f"{near}, one letter away", f"Write {near} in {place}.")
