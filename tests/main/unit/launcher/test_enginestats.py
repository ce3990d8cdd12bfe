"""./glm53 logs --stats: one readable line an update, from the lines vLLM 0.32 writes."""

import re
import subprocess
import sys
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from launcher.enginestats import Merger, readable

ROOT = Path(__file__).resolve().parents[4]
STATS = (
    "(APIServer pid=1) INFO 11-29 12:00:0{n} [loggers.py:323] Engine 000: Avg prompt throughput: 4934.0 tokens/s, "
    "Avg generation throughput: 117.3 tokens/s, Running: {n} reqs, Waiting: 2 reqs, GPU KV cache usage: 12.1%, "
    "Prefix cache hit rate: 40.0%"
)
DRAFTS = (
    "INFO 11-29 12:00:01 [metrics.py:120] SpecDecoding metrics: Mean acceptance length: 4.10, Accepted throughput: "
    "10.00 tokens/s, Drafted throughput: 2.00 tokens/s, Accepted: 31 tokens, Drafted: 70 tokens, "
    "Per-position acceptance rate: 0.900, 0.700, 0.500, Avg Draft acceptance rate: 44.3%"
)
NOISE = 'INFO:     10.0.0.1:1 - "POST /v1/chat/completions HTTP/1.1" 200 OK'


def test_an_update_is_one_line_with_the_drafts_of_the_same_update() -> None:
    (line,) = readable([NOISE, STATS.format(n=1), NOISE, DRAFTS, NOISE])
    assert re.sub(r" +", " ", line) == (
        "12:00:01 prefill 4934.0 tok/s decode 117.3 tok/s running 1 waiting 2 KV 12.1% prefix hits 40.0% "
        "tokens a step 4.10 (44% accepted) by position 90 70 50"
    )


def test_an_engine_without_drafting_gets_its_lines_too() -> None:
    assert len(list(readable([STATS.format(n=1), NOISE, STATS.format(n=2)]))) == 2


def test_while_following_an_update_does_not_wait_for_the_next() -> None:
    merger = Merger()
    assert merger.feed(STATS.format(n=1)) == []
    assert len(merger.flush()) == 1
    assert merger.flush() == []


def test_a_drafting_rate_of_nan_and_a_cpu_engine_are_read() -> None:
    text = STATS.format(n=1).replace("GPU KV", "CPU KV")
    drafts = DRAFTS.replace("44.3", "nan").replace("4.10", "nan")
    (line,) = readable([text, drafts])
    assert "KV  12.1%" in line
    assert "nan" in line


@given(st.lists(st.text(max_size=200), max_size=20))
def test_garbage_is_no_update(lines: list[str]) -> None:
    assert list(readable(lines)) == []


def test_a_file_or_standard_input_is_read(tmp_path: Path) -> None:
    log = tmp_path / "vllm.log"
    log.write_bytes(b"\xff\xfe garbage\n" + STATS.format(n=3).encode() + b"\n")
    for words, given_in in (([str(log)], None), (["-"], STATS.format(n=3))):
        done = subprocess.run(
            [sys.executable, "glm53", "logs", "--stats", *words],
            cwd=ROOT, input=given_in, capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert "running   3" in done.stdout
    done = subprocess.run(
        [sys.executable, "glm53", "logs", "--stats", "/no/such"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
