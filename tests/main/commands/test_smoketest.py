"""The smoketest passes 8/8 against a right server, and each wrong server fails exactly the case made for it."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from smoketest import picture
from smoketest.cases import CASES
from tests.gate.harness import simulator as server

ROOT = Path(__file__).resolve().parents[3]


def smoketest(*arguments: str, **environment: str) -> tuple[int, str, str]:
    """run.sh as a user runs it; the interpreter of the tests stands first in PATH, so httpx is at hand."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    kept = {key: value for key, value in os.environ.items() if key not in ("API_KEY", "API_KEY_FILE", "OPENAI_API_KEY")}
    done = subprocess.run(
        [str(ROOT / "smoketest/run.sh"), *arguments],
        env={**kept, "PATH": path, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, done.stdout, done.stderr


def test_a_right_server_passes_all_eight() -> None:
    with server() as base:
        status, out, _ = smoketest(base)
    assert out.splitlines()[-1] == "8/8 passed"
    assert [line.split()[:2] for line in out.splitlines()[:-1]] == [["ok", case.name] for case in CASES]
    assert status == 0


WRONG: dict[str, dict[str, Any]] = {
    "models_list_the_checkpoint": {"root": "/models/some-other-9b"},
    "thinking_is_on_by_default": {"defect": "thinking_on"},
    "thinking_turns_off_per_request": {"defect": "think_tag"},
    "fact": {"defect": "fact"},
    "tool_call_is_parsed": {"defect": "tool_json"},
    "image_is_read": {"defect": "image"},
    "max_tokens_is_exact": {"defect": "max_tokens"},
    "context_limit_is_refused": {"defect": "context_limit"},
}


@pytest.mark.parametrize("case", [case.name for case in CASES])
def test_each_wrong_server_fails_exactly_its_case(case: str) -> None:
    with server(**WRONG[case]) as base:
        status, out, _ = smoketest(base, "--json")
    report = json.loads(out)
    assert [result["case"] for result in report["cases"] if not result["passed"]] == [case]
    assert status == report["failed"] == 1


def test_a_call_left_as_text_fails_the_tool_case() -> None:
    with server(defect="tool_text") as base:
        _, out, _ = smoketest(base, "--json")
    assert [result["case"] for result in json.loads(out)["cases"] if not result["passed"]] == ["tool_call_is_parsed"]


@pytest.mark.parametrize(("root", "good"), [
    ("/models/GLM-5.3-Flash-NVFP4", True), ("zai-org/glm-5.3-flash", True), ("/home/glm53/models/other-9b", False),
    ("/models/target", False),  # the kit's mount point: the simulated tokenizer does not know GLM's markers
])  # fmt: skip
def test_the_root_tells_the_model_and_the_kits_own_name_does_not(root: str, good: bool) -> None:
    with server(root=root) as base:
        status, _, _ = smoketest(base, ONLY="models_list_the_checkpoint")
    assert status == (0 if good else 1)


def test_the_status_counts_the_failed_cases() -> None:
    """Another model under the name asked for: everything that needs an answer fails, one by one."""
    with server(model="other") as base:
        status, out, _ = smoketest(base, "glm53")
    assert status == out.count("FAIL ") == 8 - out.count("ok ")
    assert status >= 6


def test_it_works_with_the_key_and_says_what_is_missing_without(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("s3cret\n")
    with server(key="s3cret") as base:
        assert smoketest(base, API_KEY_FILE=str(key))[0] == 0
        status, out, err = smoketest(base, ONLY="fact")
    assert status == 1
    assert "API_KEY_FILE" in out
    assert "s3cret" not in out + err


def test_only_runs_one_case_and_json_is_one_object() -> None:
    with server() as base:
        status, out, _ = smoketest(f"{base}/v1", "--json", ONLY="fact")
    assert status == 0
    assert [result["case"] for result in json.loads(out)["cases"]] == ["fact"]


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [
        ((), {}),
        (("http://127.0.0.1:9",), {}),
        (("ftp://x",), {}),
        (("http://127.0.0.1:9", "a", "b"), {}),
        (("http://127.0.0.1:9",), {"ONLY": "nothing"}),
        (("http://127.0.0.1:9",), {"TIMEOUT": "soon"}),
    ],
)
def test_usage_and_no_server_end_with_100(arguments: tuple[str, ...], environment: dict[str, str]) -> None:
    """100 is no count of cases, and there is one line, never a traceback."""
    status, out, err = smoketest(*arguments, **environment)
    assert status == 100
    assert out == ""
    assert "Traceback" not in err
    assert err.strip()


def test_a_web_page_is_not_a_model() -> None:
    """Every case fails with a line of its own when a router answers HTML."""
    with server(reply_with="html") as base:
        status, out, _ = smoketest(base)
    assert status == 8
    assert "HTML instead of JSON" in out


def test_the_picture_is_a_png_with_the_answer_once() -> None:
    data = picture.table_png()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    cells = [cell for row in picture.ROWS for cell in row]
    assert cells.count(picture.ANSWER) == 1
    line = next(row for row in picture.ROWS if row[0] == picture.LINE)
    assert line[picture.HEADER.index(picture.SEASON)] == picture.ANSWER


def test_on_a_bare_host_usage_is_told_before_anything_is_installed(tmp_path: Path) -> None:
    done = subprocess.run(
        [str(ROOT / "smoketest/run.sh")],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 100
    assert done.stderr.startswith("usage: smoketest/run.sh BASE")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "body", [b"{}", b'{"choices": [{}], "data": [{"id": "glm53"}], "usage": {"prompt_tokens": 1}}', b"[]"]
)
def test_a_server_that_answers_something_else_fails_every_case_with_a_line(body: bytes) -> None:
    """Another engine, a router's own answer: whatever JSON it is, no traceback."""

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST

        def log_message(self, *arguments: object) -> None:
            pass

    found = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=found.serve_forever, daemon=True).start()
    with contextlib.closing(found.socket):
        status, out, err = smoketest(f"http://127.0.0.1:{found.server_port}")
        found.shutdown()
    assert err == ""
    assert status == 8
    assert out.count("FAIL") == 8
