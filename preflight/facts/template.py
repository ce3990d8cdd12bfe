"""The chat template that CHAT_TEMPLATE gives vLLM: a file, or the template itself as text."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Template:
    """A template that can be read: what to call it, its text, and whether it is the checkpoint's `own`."""

    name: str
    text: str
    own: bool


def inline(given: str) -> bool:
    """Whether this is a template rather than a path to one; vLLM takes both."""
    return bool({"{", "\n"} & set(given))


def template(given: str, model: Path) -> Template | None:
    """The template that vLLM would get; None for a file that is not there or cannot be read."""
    if inline(given):
        return Template("the template in CHAT_TEMPLATE", given, False)
    try:
        content = Path(given).read_bytes()
        # By content too: Hugging Face's cache links its files, and people copy them.
        own = any(path.read_bytes() == content for path in sorted(model.glob("*.jinja")))
    except OSError:
        return None
    return Template(given, content.decode(errors="replace"), own)
