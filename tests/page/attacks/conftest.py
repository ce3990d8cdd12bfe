"""One real kit that waits for a second box: its page is all that is attacked. Loopback only."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.main.kits.boxes import Box, boxes, until
from tests.page.asking import SECRET, TOKEN

OUTSIDE = "canary-outside-of-every-root"


@pytest.fixture(scope="session")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    folder = tmp_path_factory.mktemp("attacked")
    with boxes(folder, 1, 2, GROUP_SECRET=SECRET, STATUS_TOKEN=TOKEN) as (made,):
        made.start()
        until(lambda: made.status().get("stage") == "join", [made])
        (folder / "outside.txt").write_text(OUTSIDE)
        logs = made.folder / "log_dir"
        logs.mkdir(exist_ok=True)
        (logs / "vllm.log").write_text("inside\n")
        (logs / "link").symlink_to(folder / "outside.txt")
        (logs / "up").symlink_to("..")
        (logs / "proc").symlink_to("/proc")
        yield made
