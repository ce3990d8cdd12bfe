"""What the documents say exists: links lead somewhere, and every ./glm53 verb is one."""

import re
from pathlib import Path

import pytest

from launcher.verbs.table import VERBS

ROOT = Path(__file__).resolve().parents[3]
DOCUMENTS = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
# docker compose's own verbs that the documents use.
PASSED_ON = {"up", "down", "ps", "config", "restart", "exec", "stop", "start"}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files(document: Path) -> None:
    links = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", document.read_text())
    assert [link for link in links if not (document.parent / link).exists()] == []


def anchors(document: Path) -> set[str]:
    """What `#...` may name in a document, as Markdown viewers make it."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(), re.MULTILINE)
    kept = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.strip().replace(" ", "-") for heading in kept}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_headings(document: Path) -> None:
    links = re.findall(r"\]\(([^)#:\s]*)#([^)\s]+)\)", document.read_text())
    places = [(document.parent / name if name else document, place) for name, place in links]
    assert [place for file, place in places if file.suffix == ".md" and place not in anchors(file)] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_verb_exists(document: Path) -> None:
    options = r"(?:(?:-f|--without|--with) \S+ |--stock )*"
    verbs = set(re.findall(rf"\./glm53 {options}([a-z]+)\b", document.read_text()))
    assert verbs <= {verb.name for verb in VERBS} | PASSED_ON
