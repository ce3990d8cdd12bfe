"""Predictions and padding beside vLLM itself: its grouping code, its KV cache size line, its load."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import model
from core.units import GIB
from entrypoint.sizing import lab
from entrypoint.sizing.geometry import Shape, effective_block, pool
from entrypoint.sizing.rows import compare_pool
from entrypoint.sizing.table import GB10
from lab.model import EVEN, ODD, config, tiny
from lab.padded import mounted
from lab.vllm import ENGINE, tree
from launcher.verbs.pad import run as pad

HERE = Path(__file__).resolve().parent
FACTS = model.load()


def in_vllm(script: str, *arguments: str, path: str = "", seconds: float = 600) -> subprocess.CompletedProcess[str]:
    """Run a script of this folder in the environment's vLLM; nothing of it is left when it takes too long."""
    environment = {
        **os.environ,
        "PYTHONPATH": path,
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [sys.executable, str(HERE / script), *arguments]
    process = subprocess.Popen(
        command, cwd="/", env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        out, err = process.communicate(timeout=seconds)
    finally:
        with contextlib.suppress(ProcessLookupError):  # the ranks, where the main process left any
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def cases(*, drafter: bool) -> list[dict[str, Any]]:
    made = []
    for tp, tuned in GB10.items():
        for recoverssm in (True, False):
            made.append(
                {
                    "tp": tp, "block": effective_block(FACTS, tp, tuned.block, 7), "pin": tuned.kv_bytes,
                    "max_len": tuned.max_len, "batch": tuned.batch_tokens, "recoverssm": recoverssm, "drafter": drafter,
                    "heads": FACTS.heads(tp), "draft_kv_heads": FACTS.drafter_heads(tp)[1],
                }
            )  # fmt: skip
    return made


@pytest.mark.parametrize("release", [pytest.param("0.31.0", marks=pytest.mark.full), "0.32.0"])
@pytest.mark.timeout(700)
def test_the_predicted_pool_is_what_vllms_own_code_finds(release: str) -> None:
    packed = release == "0.32.0"
    wanted = cases(drafter=packed)  # 0.31's grouper refuses the drafter's layers; overlays added them
    done = in_vllm(
        "vllm_pool.py", json.dumps(wanted), path="" if release == ENGINE else str(tree(release)), seconds=600
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(found) == len(wanted)
    for case, seen in zip(wanted, found, strict=True):
        shape = Shape(
            case["tp"], case["block"], case["max_len"], seqs=16, batch_tokens=case["batch"],
            spec="dflash" if packed else "none", layout="packed" if packed else "split", recoverssm=case["recoverssm"],
        )  # fmt: skip
        predicted = pool(FACTS, shape, case["pin"])
        assert (predicted.tokens, predicted.blocks) == (seen["tokens"], seen["blocks"]), case


def test_the_labs_models_are_those_predicted() -> None:
    facts = FACTS["lab"]
    for widths, heads in ((EVEN, "kv_heads"), (ODD, "padded_from")):
        written = config(widths)
        assert facts["layers"] == written["num_hidden_layers"]
        assert facts[heads] == written["num_key_value_heads"]
        assert facts["width"] == written["head_dim"]
        assert facts["bytes"] == {"bfloat16": 2, "float32": 4}[str(written["torch_dtype"])]


@pytest.mark.full
@pytest.mark.timeout(700)
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_the_engines_line_is_predicted_exactly(ranks: int) -> None:
    done = in_vllm("vllm_tiny.py", str(tiny()), str(ranks))
    assert "ANSWER" in done.stdout, (done.stdout + done.stderr)[-3000:]
    lines = [line for line in (done.stdout + done.stderr).splitlines() if "KV cache size" in line]
    predicted = lab.pool(FACTS, ranks, GIB, 1024)
    seen = re.search(r"KV cache size: ([\d,]+)", lines[0])
    assert seen is not None
    assert int(seen.group(1).replace(",", "")) == predicted.tokens
    row = compare_pool(predicted, lines[0])
    assert row is not None
    assert row.level == "ok"


def qwen(folder: Path, **more: Any) -> None:
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(53)
    config = Qwen3Config(
        hidden_size=64, num_attention_heads=8, num_key_value_heads=2, head_dim=32, intermediate_size=160,
        num_hidden_layers=2, vocab_size=320, max_position_embeddings=1024, initializer_range=0.3,
        bos_token_id=1, eos_token_id=2, tie_word_embeddings=False, **more,
    )  # fmt: skip
    Qwen3ForCausalLM(config).save_pretrained(folder)


@pytest.mark.full
@pytest.mark.timeout(1900)
def test_three_ranks_serve_a_padded_model_with_the_unpadded_ones_answer(tmp_path: Path) -> None:
    """Heads, inner width and vocabulary (320) do not divide by three; without padding vLLM refuses."""
    qwen(tmp_path / "plain")
    assert pad([str(tmp_path / "plain"), str(tmp_path / "padded"), "--tp", "3"]) == 0
    overlay = str(mounted(("tp_pad",)))
    refused = in_vllm("vllm_tiny.py", str(tmp_path / "plain"), "3")
    assert "ANSWER" not in refused.stdout
    answers = []
    for folder, ranks, path in (("plain", "1", ""), ("padded", "3", overlay)):
        # fp32: three ranks add their parts in another order than one, which in bf16 may turn a near tie
        done = in_vllm("vllm_tiny.py", str(tmp_path / folder), ranks, "float32", path=path)
        lines = [line for line in done.stdout.splitlines() if line.startswith("ANSWER ")]
        assert lines, (done.stdout + done.stderr)[-3000:]
        answers.append(json.loads(lines[0].removeprefix("ANSWER ")))
        assert ("glm53 overlay tp_pad: hooked" in done.stdout + done.stderr) == bool(path)
    assert answers[0] == answers[1]
    assert len(set(answers[0])) > 4


@pytest.mark.full
@pytest.mark.timeout(1300)
def test_the_load_hook_pads_what_is_stored_unpadded(tmp_path: Path) -> None:
    """As with the big checkpoint: hard links, sizes in config.json, zeros added while loading."""
    qwen(tmp_path / "plain")
    config = json.loads((tmp_path / "plain" / "config.json").read_text())
    linked = tmp_path / "linked"
    linked.mkdir()
    os.link(tmp_path / "plain" / "model.safetensors", linked / "model.safetensors")
    # The target's rules know experts and latent heads; of a dense model they know q, k, v, b and o projections.
    sizes = {"linear_num_heads": [8, 12], "num_attention_heads": [8, 12]}
    config |= {"num_attention_heads": 12, "num_key_value_heads": 3}
    config["tp_pad_orig"] = {"tp": 3, "stored": "original", "sizes": sizes}
    (linked / "config.json").write_text(json.dumps(config))
    path = str(mounted(("tp_pad",)))
    answers = []
    for folder in ("plain", "linked"):
        done = in_vllm("vllm_tiny.py", str(tmp_path / folder), "1", path=path)
        lines = [line for line in done.stdout.splitlines() if line.startswith("ANSWER ")]
        assert lines, (done.stdout + done.stderr)[-3000:]
        answers.append(lines[0])
    assert answers[0] == answers[1]
