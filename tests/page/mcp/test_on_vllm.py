"""The same tools against real vLLM on two boxes of the lab: minutes, so only with --full."""

from __future__ import annotations

from typing import Any

import pytest

from lab import watch
from tests.main.lab.clusters import a_lab, serves
from tests.page.asking import SECRET, TOKEN, call
from tests.page.mcp.test_tools import CASES, ELSEWHERE, by_the_plain_form, by_the_sdks_client

# What real vLLM says, where the stand-in says something else.
REAL: dict[str, tuple[dict[str, Any], str]] = {
    "metrics": ({"grep": "num_requests_running"}, "vllm:num_requests_running"),
    "latency_percentiles": ({"window_s": 10}, '"observations"'),
    "cache_sizes": ({}, '"folder"'),
    "read_log": ({}, "INFO"),
    "search_files": ({"path": ".", "pattern": r"Loading \w+"}, "vllm.log"),
    "versions": ({}, '"torch"'),
}


@pytest.mark.full
@pytest.mark.timeout(900)
def test_every_tool_against_real_vllm() -> None:
    cases = {**CASES, **REAL}
    with a_lab("page-mcp", 2, {"GROUP_SECRET": SECRET, "STATUS_TOKEN": TOKEN}) as lab:
        serves(lab)
        for box in lab.boxes:
            watch.ask(lab, box, "Say something.", 60)
            kept = box.path / "logs" / "evidence" / "20260101T000000-abc"
            kept.mkdir(parents=True)
            (kept / "summary.json").write_text("{}")
        head, worker = (box.address for box in lab.boxes)
        by_the_plain_form(head, cases)
        by_the_sdks_client(worker, cases)
        for tool in ELSEWHERE:
            assert worker in call(head, tool, node=worker, **cases[tool][0])["box"], tool
