"""Nothing outside of the roots is read: 2,000 tries by name, and links swapped in between check and open."""

from __future__ import annotations

import ctypes
import json
import os
import random
import threading
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import pytest

from entrypoint.status.reading import Outside, Root, opened, walk
from entrypoint.status.searching import ask_worker
from tests.main.kits.boxes import Box
from tests.page.asking import BEARER, client, told
from tests.page.attacks.conftest import OUTSIDE
from tests.page.attacks.wire import fresh_address, get, status_of, well

TRIES = 2000
TARGETS = (
    "outside.txt",
    "etc/passwd",
    "proc/self/environ",
    "proc/1/environ",
    "proc/self/root/etc/passwd",
    "model/config.json",
)
TELLTALE = (OUTSIDE, "root:x:0", "STATUS_TOKEN=", "GROUP_SECRET=", "PATH=/")


def names(seed: int) -> Iterator[str]:
    """Paths that want out: dots, encodings, NUL, Unicode, links, /proc, in every mixture."""
    chance = random.Random(seed)
    ups = [
        "..",
        "%2e%2e",
        ".%2e",
        "..%00",
        "..\0",
        "．．",
        "..;",
        "...",
        "..%c0%af",
        "%252e%252e",
        "..\\",
        "up",
        "\u202e..",
        "․․",
    ]
    slashes = ["/", "//", "/./", "%2f", "\\", "%5c", "∕", "/%2e/", "%252f"]
    starts = ["", "/", "./", "link", "up/", "proc/", "/proc/self/", "evidence/", "vllm.log/", "file:///", "~/", "\0"]
    while True:
        path = chance.choice(starts)
        for _ in range(chance.randint(0, 6)):
            path += chance.choice(ups) + chance.choice(slashes)
        path += chance.choice(TARGETS)
        if chance.random() < 0.1:
            path += chance.choice(["\0.log", "%00.log", "/", "/.", "?x", "#x"])
        yield path


def safe(text: str) -> None:
    assert not any(words in text for words in TELLTALE), text[:500]


def test_two_thousand_names_lead_nowhere(box: Box) -> None:
    roots = [Root(str(box.folder / "log_dir"))]
    made = names(1)
    for _ in range(TRIES):
        path = next(made)
        if random.random() < 0.3:
            path = f"{roots[0].path}/{path}"
        try:
            with opened(roots, path) as descriptor:
                safe(os.read(descriptor, 1000).decode(errors="replace"))
        except Outside as error:
            safe(str(error).replace(path, ""))


def test_names_over_the_wire(box: Box) -> None:
    made = names(2)
    for number in range(150):
        path = next(made)
        source = fresh_address() if number % 50 == 0 else ""
        raw = path.replace("\0", "%00").replace(" ", "%20")
        answer = get(box, f"/logs/{raw}", source, **BEARER)
        assert status_of(answer) in (200, 303, 307, 400, 404), answer[:200]
        safe(answer.decode(errors="replace"))
        if number < 15:
            safe(told(box.lan, "read_log", path=path)[0])
            safe(told(box.lan, "search_files", path=path, pattern=".")[0])
    well(box)


def test_hidden_routes_do_not_open_either(box: Box) -> None:
    with client() as asking:
        for path in ("/logs/../../etc/passwd", "/static/../../etc/passwd", "/logs/%2e%2e/%2e%2e/outside.txt"):
            answer = asking.get(f"http://{box.lan}:8082{path}", headers=BEARER)
            assert answer.status_code == 404
            safe(answer.text)
        quoted = urllib.parse.quote(str(box.folder.parent / "outside.txt"), safe="")
        safe(asking.get(f"http://{box.lan}:8082/logs/{quoted}", headers=BEARER).text)


@pytest.fixture
def swapped(tmp_path: Path) -> Iterator[Path]:
    """A root in which `there` is exchanged with a link that leads out, and back, as fast as one core can."""
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "there").mkdir(parents=True)
    (root / "file").write_text("inside")
    outside.mkdir()
    for folder, text in ((root / "there", "inside"), (outside, OUTSIDE)):
        (folder / "file").write_text(text)
    (root / "way").symlink_to(outside)
    (root / "link").symlink_to(outside / "file")
    libc = ctypes.CDLL(None, use_errno=True)
    ended = threading.Event()
    count = 0

    def exchange(one: Path, other: Path) -> None:
        done = libc.renameat2(-100, os.fsencode(one), -100, os.fsencode(other), 2)  # RENAME_EXCHANGE
        assert done == 0, os.strerror(ctypes.get_errno())

    def swap() -> None:
        nonlocal count
        while not ended.is_set():
            exchange(root / "there", root / "way")
            exchange(root / "file", root / "link")
            count += 1

    thread = threading.Thread(target=swap)
    thread.start()
    yield root
    ended.set()
    thread.join()
    assert count > 100


def test_links_swapped_in_between_check_and_open_lead_nowhere(swapped: Path) -> None:
    roots = [Root(str(swapped))]
    inside = refused = 0
    for number in range(TRIES):
        try:
            with opened(roots, ("there/file", "file", "way/file", "link")[number % 4]) as descriptor:
                assert os.read(descriptor, 100) == b"inside"
                inside += 1
        except Outside:
            refused += 1
    assert inside  # both happened: the race was run
    assert refused


def test_a_walk_through_swapped_folders_leads_nowhere(swapped: Path) -> None:
    for _ in range(200):
        with opened([Root(str(swapped))], "", folder=True) as descriptor:
            for _, file in walk(descriptor, "/"):
                assert os.read(file, 100) == b"inside"


async def _search(root: Path) -> str:
    question = {"job": "search", "path": ".", "pattern": "canary|inside", "glob": "", "most": 100}
    answer = await ask_worker({**question, "roots": [str(root)], "secrets": []}, 10)
    return json.dumps(answer)


def test_a_search_through_swapped_folders_leads_nowhere(swapped: Path) -> None:
    import asyncio

    for _ in range(10):
        assert OUTSIDE not in asyncio.run(_search(swapped))
