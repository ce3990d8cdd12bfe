"""The argv of every GB10 group is accepted by the own argument parsers of two vLLM releases, value by value."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from lab.vllm import tree
from tests.main.trees.planned import command

HERE = Path(__file__).parent
VERSIONS = ("0.31.0", "0.32.0")
METHODS = {"dflash": 7, "mtp": 4, "none": 0}
CASES = [(tp, method, rank) for tp in (2, 3, 4, 6) for method in METHODS for rank in (0, tp - 1)]

# Knobs that reach argv and are not at their default in CASES.
ODD = {
    "CUDA_GRAPHS": "0",
    "SKIP_MM_PROFILING": "1",
    "ITERATION_DETAILS": "1",
    "MAX_LOGPROBS": "50",
    "CHAT_TEMPLATE": __file__,  # vLLM looks whether the file is there
    "TOOL_PARSER_PLUGIN": "/opt/glm53/image/plugin.py",
    "EXTRA_ARGS": "--seed 7 --enable-prefix-caching",
    "SPEC_EXTRA": '{"disable_padded_drafter_batch": true}',
}
GRAPHS = {"CUDAGRAPH_MODE": "FULL_AND_PIECEWISE", "CUDAGRAPH_CAPTURE_SIZES": "1,2,4,8,16"}


WRONG = (["/models/target", "--no-such-flag", "1"], ["/models/target", "--moe-backend", "nonsense"])


def arguments(argv: tuple[str, ...]) -> list[str]:
    """What follows `vllm serve`."""
    return list(argv[argv.index("serve") + 1 :])


@cache
def parsed(version: str) -> list[dict[str, Any]]:
    """What the release's own parser makes of CASES, ODD, GRAPHS and WRONG, in that order.

    Importing vLLM takes seconds, so it is done once a release; its packages come from this run's environment.
    """
    groups = [arguments(command(rank, tp, SPEC_METHOD=method).argv) for tp, method, rank in CASES]
    odd = [arguments(command(0, 4, **knobs).argv) for knobs in (ODD, GRAPHS)]
    done = subprocess.run(
        [sys.executable, str(HERE / "parse_with_vllm.py")],
        input=json.dumps([*groups, *odd, *WRONG]),
        capture_output=True,
        text=True,
        cwd="/",
        env={"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "PYTHONPATH": str(tree(version))},
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found, results = json.loads(done.stdout.splitlines()[-1])
    assert found.startswith(version), f"asked for {version}, parsed with {found}"
    assert len(results) == len(CASES) + 4
    return list(results)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_group_and_method(version: str) -> None:
    for (tp, method, rank), result in zip(CASES, parsed(version), strict=False):
        assert "error" not in result, f"TP={tp} {method} rank {rank}: {result}"
        assert (result["tensor_parallel_size"], result["nnodes"], result["node_rank"]) == (tp, tp, rank)
        assert (result["master_addr"], result["master_port"]) == ("198.18.0.1", 20014)
        assert result["headless"] == (rank > 0)
        if rank == 0:
            assert (result["host"], result["port"]) == ("127.0.0.1", 41001)
        assert result["mm_encoder_tp_mode"] == ("data" if tp in (3, 6) else "weights")
        assert result["limit_mm_per_prompt"] == {"image": 16, "video": 0}
        assert result["kv_cache_memory_bytes"] > 2**30
        assert (result["speculative_config"] or {}).get("num_speculative_tokens", 0) == METHODS[method]
        assert (result["speculative_config"] or {}).get("method", "none") == method
        assert result["model_tag"] == "/models/target"


@pytest.mark.parametrize("version", VERSIONS)
def test_every_knob_that_reaches_argv(version: str) -> None:
    odd, graphs = parsed(version)[len(CASES) : len(CASES) + 2]
    assert "error" not in odd, odd
    assert "error" not in graphs, graphs
    assert odd["speculative_config"]["disable_padded_drafter_batch"] is True
    assert odd["max_logprobs"] == 50
    assert graphs["cudagraph_capture_sizes"] == [1, 2, 4, 8, 16]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_wrong_argument_is_seen(version: str) -> None:
    assert all("error" in result for result in parsed(version)[-2:])
