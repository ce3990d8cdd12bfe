"""The gate as a command: exit status, one clear line for every failure, nothing lost."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gate.__main__ import main
from tests.gate.harness import ROOT, USUAL, simulator

FAST = ["--retry", "0", "--timeout", "20"]


@dataclass(frozen=True)
class Done:
    """What a command left: its status and what it wrote."""

    returncode: int
    stdout: str
    stderr: str


def gate(*arguments: str) -> Done:
    """One command line of the gate, run in this process."""
    out, error = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(error):
        status = main(list(arguments))
    return Done(status, out.getvalue(), error.getvalue())


@pytest.fixture(autouse=True)
def _no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("API_KEY", "API_KEY_FILE", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def report(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return found


def test_the_status_counts_failed_checks_and_the_report_stands_alone(tmp_path: Path) -> None:
    with simulator(**USUAL, defect="image") as base:
        done = gate("image", "max_tokens", "quick", "--url", base, "--out", str(tmp_path), *FAST)
    assert done.returncode == 1, done.stderr
    assert [r["outcome"]["verdict"] for r in report(tmp_path)["results"]] == ["pass", "fail"]
    page = (tmp_path / "report.html").read_text()
    assert "<script" not in page
    assert "http://www" not in page.replace("http://www.w3.org", "")
    assert "A table in a picture" in page
    assert "How to read this" in page


def test_nobody_there_is_not_begun(tmp_path: Path) -> None:
    done = gate("quick", "--url", "http://127.0.0.1:9", "--out", str(tmp_path), *FAST)
    assert done.returncode == 100
    assert "cannot connect" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("how", "arguments", "status", "words"),
    [
        ({}, ["--model", "gpt-9"], 100, "serves glm53, not 'gpt-9'"),
        ({"reply_with": "html"}, [], 100, "HTML instead of JSON"),
        ({"reply_with": "not_json"}, [], 100, "instead of JSON"),
        ({"reply_with": "busy", "retry_after": "30"}, [], 100, "come back in 30 s"),
        ({"key": "k"}, [], 100, "API_KEY"),
        ({"usage": "lost"}, [], 1, "no usage"),
        ({"reply_with": "cut"}, [], 1, "ended without [DONE]|was cut"),
        ({"reply_with": "error_event"}, [], 1, "EngineCore died"),
    ],
)
def test_every_failure_is_one_clear_line(
    how: dict[str, Any], arguments: list[str], status: int, words: str, tmp_path: Path
) -> None:
    with simulator(**USUAL, **how) as base:
        done = gate("count", "quick", "--url", base, "--out", str(tmp_path), *FAST, *arguments)
    assert done.returncode == status, done.stderr
    assert any(word in done.stderr for word in words.split("|")), done.stderr
    assert "Traceback" not in done.stderr


def test_tls_to_a_plain_port_is_one_clear_line(tmp_path: Path) -> None:
    with simulator() as base:
        done = gate("count", "--url", base.replace("http:", "https:"), "--out", str(tmp_path), *FAST)
    assert done.returncode == 100
    assert "TLS failed" in done.stderr


def test_a_cut_stream_keeps_what_had_arrived(tmp_path: Path) -> None:
    with simulator(**USUAL, reply_with="cut") as base:
        gate("count", "quick", "--url", base, "--out", str(tmp_path), *FAST)
    failure = report(tmp_path)["results"][0]["failures"][0]
    assert failure["partial"]["text"].startswith("1\n2\n")
    assert not failure["partial"]["complete"]


def test_a_busy_server_is_waited_for(tmp_path: Path) -> None:
    with simulator(**USUAL, reply_with="busy", reply_times=5, retry_after="0.3") as base:
        done = gate("max_tokens", "quick", "--url", base, "--out", str(tmp_path), "--retry", "20")
    assert done.returncode == 0, done.stderr


def test_ctrl_c_keeps_what_is_done_and_the_same_command_goes_on(tmp_path: Path) -> None:
    """The report is written, and what was asked is not asked again."""
    arguments = ["-m", "gate", "count", "--url", "", "--out", str(tmp_path), "--set", "count.runs=4"]
    with simulator(**{**USUAL, "gap_s": 0.02}) as base:
        arguments[4] = base
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stderr=subprocess.PIPE,
            text=True,
        )
        rows = tmp_path / "runs" / "count.jsonl"
        until = time.monotonic() + 60
        while time.monotonic() < until and not (rows.exists() and rows.read_text().count('"row"') >= 1):
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=30)
        assert process.returncode == 130
        assert "Traceback" not in error
        assert report(tmp_path)["interrupted"]
        before = rows.read_text().count('"row"')
        assert 1 <= before < 4
        done = gate(*arguments[2:])
    assert done.returncode == 0, done.stderr
    assert rows.read_text().count('"row"') == 4
    assert not report(tmp_path)["interrupted"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["nothing"],
        ["count", "--set", "count.run=3"],
        ["count", "--set", "count.runs=x"],
        ["count", "--nll-reference", "/nowhere"],
        ["count", "--key-file", "/nowhere"],
        ["count", "--url", "ftp://x"],
        ["speed", "compare", "one"],
        ["speed", "compare", "/nowhere", "/nowhere"],
        ["report", "/nowhere"],
        ["import", "/nowhere"],
    ],
)
def test_a_bad_setting_is_refused_in_one_line(arguments: list[str], tmp_path: Path) -> None:
    done = gate(*arguments, *(["--out", str(tmp_path)] if arguments[0] == "count" else []))
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert "expected" in done.stderr


def test_two_runs_of_one_server_do_not_differ_and_a_cold_one_is_refused(tmp_path: Path) -> None:
    sizes = [
        "--set",
        'speed.workloads=["code"]',
        "--set",
        "speed.runs=8",
        "--set",
        "speed.tokens=512",
        "--set",
        "speed.warmup=0",
    ]
    with simulator(**{**USUAL, "page": 0}) as base:
        for name, more in (("a", []), ("b", []), ("c", ["--cold", "first boot"])):
            done = gate("speed", "run", "--url", base, "--out", str(tmp_path / name), *sizes, *more)
            assert (tmp_path / name / "speed.json").exists(), done.stderr
    same = gate("speed", "compare", str(tmp_path / "a"), str(tmp_path / "b"))
    assert same.returncode == 0, same.stderr
    assert "no difference shown" in same.stdout
    cold = gate("speed", "compare", str(tmp_path / "a"), str(tmp_path / "c"))
    assert cold.returncode == 2
    assert "first boot" in cold.stderr


def test_term_to_the_launcher_ends_the_gate_too(tmp_path: Path) -> None:
    """`kill`, a closed terminal: sent to ./glm53 alone, not to what it started."""
    with simulator(**{**USUAL, "gap_s": 0.2}) as base:
        process = subprocess.Popen(
            [sys.executable, str(ROOT / "glm53"), "gate", "count", "--url", base, "--out", str(tmp_path)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        assert process.stdout is not None
        assert "gate: 1 checks" in process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 130
    assert report(tmp_path)["interrupted"]
