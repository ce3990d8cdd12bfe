"""`./glm53 pad`: what grows and by how much, hard links, byte-exact growth, and an interrupted run."""

import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import model
from entrypoint.sizing.padding import unpadded, without_overlay
from experimental.tp_pad.rules import DENSE, TARGET, DoesNotDivide, padded_shape, recorded, sizes_of
from launcher.safetensors import Unreadable, grow, read_header
from launcher.verbs.pad import dense_sizes, target_sizes

ROOT = Path(__file__).resolve().parents[3]
BIG = {
    "architectures": ["Glm5NextForConditionalGeneration"],
    "text_config": {"num_attention_heads": 64, "linear_num_heads": 64, "moe_intermediate_size": 2048, "vocab_size": 9},
}
SMALL = {
    "architectures": ["Qwen3ForCausalLM"], "hidden_size": 64, "num_attention_heads": 8, "num_key_value_heads": 2,
    "intermediate_size": 160, "vocab_size": 320,
}  # fmt: skip


def pad(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-S", "glm53", "pad", *map(str, arguments)],
        cwd=ROOT, env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, check=False,
    )  # fmt: skip


def write(path: Path, tensors: dict[str, tuple[str, tuple[int, ...], bytes]]) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(data for _, _, data in tensors.values()))


def read(path: Path) -> dict[str, tuple[tuple[int, ...], bytes]]:
    whole = path.read_bytes()
    return {tensor.name: (tensor.shape, whole[tensor.start : tensor.end]) for tensor in read_header(path)[0]}


def small_weights(seed: int = 1) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    chance = random.Random(seed)
    shapes = {
        "model.embed_tokens.weight": (320, 64),
        "model.layers.0.self_attn.q_proj.weight": (8 * 16, 64),
        "model.layers.0.self_attn.k_proj.weight": (2 * 16, 64),
        "model.layers.0.self_attn.k_proj.bias": (2 * 16,),
        "model.layers.0.self_attn.v_proj.weight": (2 * 16, 64),
        "model.layers.0.self_attn.o_proj.weight": (64, 8 * 16),
        "model.layers.0.self_attn.q_norm.weight": (16,),
        "model.layers.0.mlp.gate_proj.weight": (160, 64),
        "model.layers.0.mlp.down_proj.weight": (64, 160),
    }
    table = {}
    for name, shape in shapes.items():
        count = 2
        for length in shape:
            count *= length
        table[name] = ("BF16", shape, chance.randbytes(count))
    return table


@pytest.fixture
def small(tmp_path: Path) -> Path:
    folder = tmp_path / "small"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(SMALL))
    (folder / "tokenizer.json").write_text("{}")
    write(folder / "model.safetensors", small_weights())
    return folder


@pytest.fixture
def big(tmp_path: Path) -> Path:
    folder = tmp_path / "big"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(BIG))
    (folder / "tokenizer.json").write_text("{}")
    (folder / "model-1.safetensors").write_bytes(b"weights")
    return folder


@pytest.mark.parametrize(
    ("name", "stored", "padded"),
    [
        # MLA: absorbed widths 256 + 256, query 256, latent 512 a head
        ("model.language_model.layers.3.self_attn.q_b_proj.weight", (16384, 1536), (16896, 1536)),
        ("model.language_model.layers.3.self_attn.kv_b_proj.weight", (32768, 512), (33792, 512)),
        ("model.language_model.layers.3.self_attn.o_proj.weight", (4096, 16384), (4096, 16896)),
        ("model.language_model.layers.3.self_attn.q_a_proj.weight", (1536, 4096), (1536, 4096)),
        ("model.language_model.layers.3.self_attn.indexer.wq_b.weight", (2048, 1536), (2048, 1536)),
        # KDA: 64 heads of 128
        ("model.language_model.layers.0.self_attn.q_proj.weight", (8192, 4096), (8448, 4096)),
        ("model.language_model.layers.0.self_attn.b_proj.weight", (64, 4096), (66, 4096)),
        ("model.language_model.layers.0.self_attn.f_a_proj.weight", (128, 4096), (128, 4096)),
        ("model.language_model.layers.0.self_attn.g_b_proj.weight", (8192, 128), (8448, 128)),
        ("model.language_model.layers.0.self_attn.k_conv1d.weight", (8192, 1, 4), (8448, 1, 4)),
        ("model.language_model.layers.0.self_attn.dt_bias", (8192,), (8448,)),
        ("model.language_model.layers.0.self_attn.A_log", (64,), (66,)),
        ("model.language_model.layers.0.self_attn.A_log", (1, 1, 64, 1), (1, 1, 66, 1)),
        ("model.language_model.layers.0.self_attn.o_norm.weight", (128,), (128,)),
        # experts: two numbers a byte, a scale per 16; MTP's are BF16
        ("model.language_model.layers.9.mlp.experts.7.gate_proj.weight", (2048, 2048), (2304, 2048)),
        ("model.language_model.layers.9.mlp.experts.7.up_proj.weight_scale", (2048, 256), (2304, 256)),
        ("model.language_model.layers.9.mlp.experts.7.down_proj.weight", (4096, 1024), (4096, 1152)),
        ("model.language_model.layers.9.mlp.experts.7.down_proj.weight_scale", (4096, 128), (4096, 144)),
        ("model.language_model.layers.9.mlp.experts.7.down_proj.weight_scale_2", (), ()),
        ("model.language_model.layers.9.mlp.experts.7.down_proj.input_scale", (), ()),
        ("model.language_model.layers.45.mlp.experts.7.down_proj.weight", (4096, 2048), (4096, 2304)),
        ("model.language_model.layers.9.mlp.shared_experts.down_proj.weight", (4096, 2048), (4096, 2304)),
        # not padded: they divide, or are whole on each rank
        ("model.language_model.layers.0.mlp.gate_proj.weight", (12288, 4096), (12288, 4096)),
        ("model.language_model.layers.9.mlp.gate.weight", (288, 4096), (288, 4096)),
        ("model.visual.blocks.0.attn.q_proj.weight", (1024, 1024), (1024, 1024)),
        ("lm_head.weight", (154880, 4096), (154880, 4096)),
    ],
)
def test_every_tensor_of_the_target_grows_by_its_rule(
    name: str, stored: tuple[int, ...], padded: tuple[int, ...]
) -> None:
    for tp in (3, 6):
        sizes = target_sizes(BIG["text_config"], tp)  # type: ignore[arg-type]
        assert padded_shape(name, stored, sizes, TARGET) == padded


def test_padded_sizes_divide_and_experts_keep_whole_tiles() -> None:
    facts = model.load()
    for tp in (3, 6):
        assert facts.heads(tp) % tp == 0
        assert facts.expert_width(tp) // tp % 128 == 0
        assert facts.vocabulary(tp) == 154944
        assert facts.vocabulary(tp) % tp == 0


def test_the_drafter_keeps_its_queries_per_key() -> None:
    drafter = {"num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 12288}
    assert dense_sizes(drafter, 3) == {"num_key_value_heads": (8, 9), "num_attention_heads": (32, 36)}
    assert dense_sizes(drafter, 6) == {"num_key_value_heads": (8, 12), "num_attention_heads": (32, 48)}


def test_a_tensor_that_does_not_follow_its_count_is_named() -> None:
    with pytest.raises(DoesNotDivide, match="A_log"):
        padded_shape("x.self_attn.A_log", (63,), {"linear_num_heads": (64, 66)}, TARGET)
    with pytest.raises(DoesNotDivide, match="k_proj"):
        padded_shape("x.self_attn.k_proj.weight", (31, 64), {"num_key_value_heads": (2, 3)}, DENSE)


def test_the_big_checkpoint_becomes_hard_links_and_a_config(big: Path, tmp_path: Path) -> None:
    target = tmp_path / "big-tp3"
    assert pad(big, target).returncode == 0
    assert (target / "model-1.safetensors").samefile(big / "model-1.safetensors")
    config = json.loads((target / "config.json").read_text())
    assert config["text_config"]["num_attention_heads"] == 66
    record = recorded(config)
    assert record is not None
    assert record["stored"] == "original"
    assert sizes_of(record)["moe_intermediate_size"] == (2048, 2304)
    assert json.loads((big / "config.json").read_text()) == BIG
    assert "nothing to do" in pad(big, target).stdout
    assert pad(big, target, "--tp", "6").returncode == 2  # made for another TP: not quietly reused


def test_links_into_a_cache_are_followed(big: Path, tmp_path: Path) -> None:
    blob = tmp_path / "blob"
    (big / "model-1.safetensors").rename(blob)
    (big / "model-1.safetensors").symlink_to(blob)
    assert pad(big, tmp_path / "out").returncode == 0
    assert not (tmp_path / "out" / "model-1.safetensors").is_symlink()
    assert (tmp_path / "out" / "model-1.safetensors").samefile(blob)


@pytest.mark.parametrize("tp", ["3", "6"])
def test_a_dense_model_is_written_padded_with_zeros_and_nothing_lost(small: Path, tmp_path: Path, tp: str) -> None:
    target = tmp_path / "out"
    done = pad(small, target, "--tp", tp)
    assert done.returncode == 0, done.stderr
    kv, queries, inner = {"3": (3, 12, 192), "6": (6, 24, 384)}[tp]
    found = read(target / "model.safetensors")
    assert found["model.layers.0.self_attn.q_proj.weight"][0] == (queries * 16, 64)
    assert found["model.layers.0.self_attn.k_proj.bias"][0] == (kv * 16,)
    assert found["model.layers.0.mlp.down_proj.weight"][0] == (64, inner)
    for name, (_, shape, data) in small_weights().items():
        new, grown = found[name]
        rows, width, wide = 1, len(data), len(grown)
        if len(shape) == 2 and shape[1] != new[1]:  # grown along the second axis: row by row
            rows, width, wide = shape[0], 2 * shape[1], 2 * new[1]
        for row in range(rows):
            old = data[row * width : (row + 1) * width]
            assert grown[row * wide : (row + 1) * wide] == old + bytes(wide - width), name
    config = json.loads((target / "config.json").read_text())
    assert config["head_dim"] == 8  # as it was; not 64 / padded heads
    assert config["num_attention_heads"] == queries
    assert config["tp_pad_orig"]["stored"] == "padded"


def test_an_interrupted_file_is_continued_where_it_ended(small: Path, tmp_path: Path) -> None:
    sizes = dense_sizes(SMALL, 3)

    def reshape(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        return padded_shape(name, shape, sizes, DENSE)

    whole, again = tmp_path / "whole", tmp_path / "again"
    grow(small / "model.safetensors", whole, reshape)
    for cut in (5, 700, 20_000, 60_000, whole.stat().st_size - 1):
        (tmp_path / "again.part").write_bytes(whole.read_bytes()[:cut])
        grow(small / "model.safetensors", again, reshape)
        assert again.read_bytes() == whole.read_bytes(), cut
        again.unlink()
    (tmp_path / "again.part").write_bytes(b"something else that is no header of ours" * 99)
    grow(small / "model.safetensors", again, reshape)
    assert again.read_bytes() == whole.read_bytes()


def sparse_model(folder: Path, shards: int, gib: int) -> None:
    """`shards` files of `gib` GiB that take no disk: two huge tensors of zeros with a mark at each end."""
    folder.mkdir()
    config = {**SMALL, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8}
    (folder / "config.json").write_text(json.dumps(config))
    rows = gib * 1024**3 // 2 // (4096 * 2)
    rows -= rows % 8
    for number in range(shards):
        header = {
            f"layers.{number}.self_attn.k_proj.weight": {
                "dtype": "BF16", "shape": [rows, 4096], "data_offsets": [0, rows * 8192],
            },
            f"layers.{number}.self_attn.o_proj.weight": {
                "dtype": "BF16", "shape": [4096, rows], "data_offsets": [rows * 8192, rows * 16384],
            },
        }  # fmt: skip
        text = json.dumps(header).encode()
        with (folder / f"model-{number}.safetensors").open("wb") as file:
            file.write(len(text).to_bytes(8, "little") + text + b"begin")
            file.seek(8 + len(text) + rows * 16384 - 3)
            file.write(b"end")


def test_a_killed_run_resumes_and_ends_with_the_same_bytes(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "config.json").write_text(json.dumps(SMALL))
    noise = random.Random(6).randbytes(16 * 1024 * 1024)
    for number in range(3):
        write(
            source / f"model-{number}.safetensors",
            {
                f"layers.{number}.self_attn.k_proj.weight": ("BF16", (8192, 1024), noise),
                f"layers.{number}.self_attn.o_proj.weight": ("BF16", (1024, 8192), noise),
            },
        )
    assert pad(source, tmp_path / "straight").returncode == 0
    command = [sys.executable, "-S", "glm53", "pad", str(source), str(tmp_path / "killed")]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    part = tmp_path / "killed" / "model-1.safetensors.part"
    deadline = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline:
        if part.exists() and part.stat().st_size > 2 * 1024 * 1024:
            break
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert part.exists()
    assert not (tmp_path / "killed" / "config.json").exists()
    assert pad(source, tmp_path / "killed").returncode == 0
    for path in sorted((tmp_path / "straight").iterdir()):
        assert path.read_bytes() == (tmp_path / "killed" / path.name).read_bytes()


@pytest.mark.full
@pytest.mark.timeout(600)
def test_forty_sparse_gib_are_streamed_in_less_than_two_gib_of_memory(tmp_path: Path) -> None:
    source = tmp_path / "sparse"
    sparse_model(source, 10, 4)
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    done = pad(source, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    assert peak * 1024 < 2 * 1024**3, (before, peak)
    made = list((tmp_path / "out").glob("*.safetensors"))
    assert sum(path.stat().st_size for path in made) > 40 * 1024**3
    for number, path in enumerate(sorted(made, key=lambda path: path.name)):
        grown = {tensor.name: tensor for tensor in read_header(path)[0]}
        with path.open("rb") as file:  # the marks stand where the first and the last number went
            file.seek(grown[f"layers.{number}.self_attn.k_proj.weight"].start)
            assert file.read(5) == b"begin"
            last = grown[f"layers.{number}.self_attn.o_proj.weight"]
            file.seek(last.end - (last.shape[1] - last.shape[1] // 9 * 8) * 2 - 3)
            assert file.read(3) == b"end"
    assert sum(path.stat().st_blocks * 512 for path in made) < 1024**3  # holes stay holes


@pytest.mark.skipif(
    not Path("/dev/shm").is_dir() or Path("/dev/shm").stat().st_dev == Path("/tmp").stat().st_dev,
    reason="this machine has one file system only",
)
def test_another_file_system_is_refused(big: Path) -> None:
    target = Path("/dev/shm") / f"glm53-pad-{os.getpid()}"
    done = pad(big, target)
    assert done.returncode == 2
    assert "hard links do not cross" in done.stderr
    assert not target.exists()


def test_mistakes_are_one_line(big: Path, small: Path, tmp_path: Path) -> None:
    made = tmp_path / "made"
    assert pad(big, made).returncode == 0
    other = tmp_path / "other"
    other.mkdir()
    (other / "diary.txt").write_text("mine")
    cut = tmp_path / "cut"
    cut.mkdir()
    (cut / "config.json").write_text(json.dumps(SMALL))
    (cut / "model.safetensors").write_bytes((small / "model.safetensors").read_bytes()[:-9])
    for source, target, said in (
        (tmp_path / "nowhere", tmp_path / "x", "config.json"),
        (big, big, "beside"),
        (big, big / "inside", "beside"),
        (made, tmp_path / "x", "padded already"),
        (big, other, "diary.txt"),
        (cut, tmp_path / "x", "cut short"),
    ):
        done = pad(source, target)
        assert done.returncode == 2, said
        assert said in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1
    assert (other / "diary.txt").read_text() == "mine"


def test_garbage_is_no_safetensors_file(tmp_path: Path) -> None:
    chance = random.Random(5)
    path = tmp_path / "x.safetensors"
    for size in (0, 3, 8, 64, 4096):
        path.write_bytes(chance.randbytes(size))
        with pytest.raises(Unreadable):
            read_header(path)


def test_an_unpadded_checkpoint_is_refused_with_the_command_to_run() -> None:
    for tp in ("3", "6", "RING3"):
        refusal = unpadded(BIG, tp, "/srv/models/glm")
        assert refusal is not None
        ranks = tp.removeprefix("RING")
        assert f"./glm53 pad /srv/models/glm /srv/models/glm-tp{ranks} --tp {ranks}" in refusal.cure
    for tp in ("2", "4", "RING4"):
        assert unpadded(BIG, tp) is None
    padded = {"text_config": {"num_attention_heads": 66, "tp_pad_orig": {"tp": 3, "stored": "original", "sizes": {}}}}
    assert unpadded(padded, "3") is None
    back = unpadded(padded, "4")
    assert back is not None
    assert "unpadded" in back.cure
    drafter = {"num_attention_heads": 36, "num_key_value_heads": 9, "tp_pad_orig": {"tp": 3, "sizes": {}}}
    assert unpadded(drafter, "3", knob="DFLASH_HOST_DIR") is None
    other = unpadded(drafter, "6", knob="DFLASH_HOST_DIR")
    assert other is not None
    assert "9 key-value heads" in other.seen
    assert "--tp 6" in other.cure


def test_no_padding_is_asked_for_where_none_is_needed() -> None:
    """Fewer key-value heads than ranks are copied; a file that names no heads is somebody else's to judge."""
    assert unpadded({"num_attention_heads": 12, "num_key_value_heads": 2}, "6") is None
    assert unpadded({"num_attention_heads": 12, "num_key_value_heads": 4}, "6") is not None
    for garbage in ({}, {"num_attention_heads": "many"}, {"num_attention_heads": True}, {"text_config": None}):
        assert unpadded(garbage, "3") is None
    assert unpadded({"architectures": ["Glm5NextForConditionalGeneration"]}, "3") is not None


def test_hard_links_need_the_overlay_that_adds_the_zeros() -> None:
    linked = {"text_config": {"num_attention_heads": 66, "tp_pad_orig": {"tp": 3, "stored": "original", "sizes": {}}}}
    told = without_overlay(linked, ("head_gate",), "/srv/models/glm-tp3")
    assert told is not None
    assert "tp_pad" in told.seen
    assert without_overlay(linked, ("tp_pad",), "x") is None
    assert without_overlay({"num_attention_heads": 64}, (), "x") is None
