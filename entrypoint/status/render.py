"""The page as HTML, whole or section by section: the same templates for the first answer and for what follows live."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from entrypoint.status.view import view

if TYPE_CHECKING:
    import jinja2

FOLDER = Path(__file__).parent
# Template and id -> heading, in the order of the page.
SECTIONS = {
    "boot": "Boot",
    "boxes": "Boxes",
    "speed": "Throughput",
    "memory": "Memory",
    "checks": "Checks",
    "plan": "Plan",
}


def page(status: Mapping[str, Any], cluster: Mapping[str, Any], links: list[str], hold: bool) -> str:
    """The whole document."""
    extra = {"sections": list(SECTIONS.items()), "links": links, "stamp": stamp()}
    return _template("page.html").render({**view(status, cluster, hold), **extra})


def sections(status: Mapping[str, Any], cluster: Mapping[str, Any]) -> tuple[str, dict[str, str]]:
    """(title, HTML by element id) of everything that may change."""
    shown = view(status, cluster)
    html = {"top": _template("top.html").render(shown)}
    html |= {f"s-{name}": _template(f"{name}.html").render(shown) for name in SECTIONS}
    return f"{shown['word']} · {status['service']['name']} on {status['service']['hostname']}", html


@cache
def static(name: str) -> bytes:
    """A file that the page loads: page.css or page.js."""
    return (FOLDER / "static" / name).read_bytes()


@cache
def stamp() -> str:
    """Changes with the static files, so that browsers may keep them."""
    digest = hashlib.sha256(b"".join(static(name) for name in ("page.css", "page.js")))
    return digest.hexdigest()[:12]


@cache
def _environment() -> jinja2.Environment:
    import jinja2  # here: a box nobody looks at does not pay for it

    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        auto_reload=False,
    )
    made.filters["json"] = lambda value: json.dumps(value, sort_keys=True)
    return made


def _template(name: str) -> jinja2.Template:
    return _environment().get_template(name)
