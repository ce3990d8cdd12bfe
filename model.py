"""The checkpoint's facts (model.toml) as types, bytes by part and rank, and a comparison with the real files.

Bytes are of what a rank holds once loaded, before overlays convert anything. Standard library only.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from core.row import Row

FILE = Path(__file__).resolve().parent / "model.toml"
# In the text of a weight index: the values of weight_map, and the bytes of all tensors.
_WEIGHT_FILE = re.compile(rb':\s*"([^"]+\.safetensors)"')
_TOTAL_SIZE = re.compile(rb'"total_size"\s*:\s*(\d+)')
BF16 = 2
# What holds the linear layers that the checkpoint leaves in BF16: itself, or the overlays dense_fp8 and dense_w4.
Dense = Literal["bf16", "fp8", "w4"]
# Bytes of a parameter: of a layer outside of dense_w4's pattern, and of one inside it (an FP8 copy and half a byte with
# one e4m3 scale per 16).
DENSE_BYTES: Mapping[Dense, tuple[float, float]] = {"bf16": (2, 2), "fp8": (1, 1), "w4": (1, 1.5625)}


@dataclass(frozen=True)
class Model:
    """model.toml with its few derived counts. `facts` is the file as parsed."""

    facts: Mapping[str, Any]

    def __getitem__(self, path: str) -> Any:
        """A fact by dotted path: `model["target.moe.experts"]`. KeyError for what the file lacks."""
        value: Any = self.facts
        for part in path.split("."):
            value = value[part]
        return value

    @property
    def layers(self) -> int:
        """Layers of the target without the MTP layer."""
        return int(self["target.layers_kda"] + self["target.layers_mla"])

    def padded(self, tp: int) -> bool:
        """True where heads do not divide by `tp` and the checkpoint must be zero-padded."""
        return bool(self["target.kda.heads"] % tp)

    def heads(self, tp: int) -> int:
        """Heads of MLA and KDA after padding for `tp`."""
        return int(self["padding.heads"] if self.padded(tp) else self["target.kda.heads"])

    def expert_width(self, tp: int) -> int:
        """Inner width of an expert after padding for `tp`."""
        return int(self["padding.width"] if self.padded(tp) else self["target.moe.width"])

    def vocabulary(self, tp: int) -> int:
        """Rows of embedding and head after padding for `tp`."""
        multiple = math.lcm(self["padding.vocabulary_multiple"], tp)
        return int(-(-self["target.vocabulary"] // multiple) * multiple)

    def drafter_heads(self, tp: int) -> tuple[int, int]:
        """(query heads, key-value heads) of the drafter after padding for `tp`."""
        table = self["padding.drafter"]
        source = table[str(tp)] if str(tp) in table else self["drafter"]
        return int(source["heads"]), int(source["kv_heads"])


@dataclass(frozen=True)
class Part:
    """A part of the weights: total bytes over all ranks and the bytes one rank holds."""

    name: str
    total: int
    rank: int


@dataclass(frozen=True)
class _Linear:
    """Parameters of a matrix: split over the ranks or held `whole` by each; what dense_fp8 and dense_w4 do with it.

    kept    in BF16 whatever is mounted
    narrow  one of those that dense_w4 takes by its own pattern, a 4-bit copy beside the FP8 one
    """

    count: int
    whole: bool = False
    kept: bool = False
    narrow: bool = False

    def bytes(self, dense: Dense) -> float:
        """Of the whole matrix; scales of FP8 (4 bytes a row) are left out."""
        return self.count * (BF16 if self.kept else DENSE_BYTES[dense][self.narrow])


@cache
def load() -> Model:
    """The facts of this kit's checkpoint."""
    return Model(tomllib.loads(FILE.read_text()))


def weights(
    model: Model, tp: int, spec: str = "dflash", *, padded: bool | None = None, dense: Dense = "bf16"
) -> tuple[Part, ...]:
    """Bytes by part at `tp` with `spec` (dflash, mtp or none) as the drafter.

    Shapes give the sizes; replicated parts count whole on each rank. `padded=False` gives what lies on disk. `dense`
    says what overlays made of the linear layers that the checkpoint leaves in BF16.
    """
    pad = model.padded(tp) if padded is None else padded
    by = tp if pad else 1  # shapes of the padded or of the original checkpoint
    hidden = model["target.hidden"]
    mla, kda, moe = model["target.mla"], model["target.kda"], model["target.moe"]
    heads, width, vocabulary = model.heads(by), model.expert_width(by), model.vocabulary(by)
    layers_dense, kda_layers, mla_layers = (model[f"target.layers_{kind}"] for kind in ("dense", "kda", "mla"))
    moe_layers = model.layers - layers_dense
    wide = heads * kda["width"]
    latent = heads * (mla["qk_width"] + mla["v_width"]) * mla["kv_rank"]  # kv_b: read apart, never converted
    index = model["target.indexer"]
    expert = 3 * width * hidden
    routed = moe["experts"] * expert
    out = heads * mla["v_width"] * hidden
    queries = heads * mla["qk_width"] * mla["q_rank"]
    downs = (mla["q_rank"] + mla["kv_rank"]) * hidden

    kda_parts = (
        _Linear(3 * wide * hidden + heads * hidden, narrow=True),  # q, k, v and beta of in_proj
        _Linear(2 * kda["width"] * hidden, whole=True, narrow=True),  # its two low ranks
        _Linear(2 * wide * kda["width"]),
        _Linear(wide * hidden, narrow=True),  # o_proj
        _Linear(3 * wide * kda["kernel"], kept=True),  # the convolution is no linear layer
    )
    mla_parts = (
        _Linear(queries),
        _Linear(latent, kept=True),
        _Linear(out, narrow=True),
        _Linear(downs, whole=True),
        _Linear(index["heads"] * index["width"] * mla["q_rank"], whole=True),
        _Linear((2 * index["width"] + index["heads"]) * hidden, whole=True, kept=True),  # keys, pool gate, head gate
    )
    shared = _Linear(moe["shared"] * expert, narrow=True)
    kind = dense.upper()
    parts = [
        _part("routed experts (NVFP4)", moe_layers * routed * moe["bytes_per_parameter"], 0, tp),
        _layers(f"KDA layers ({kind})", kda_layers, kda_parts, dense, tp),
        _layers(f"MLA layers and indexer ({kind})", mla_layers, mla_parts, dense, tp),
        _layers(f"shared experts ({kind})", moe_layers, (shared,), dense, tp),
        _layers(f"dense MLP ({kind})", layers_dense, (_Linear(3 * moe["dense_width"] * hidden),), dense, tp),
        _part("embedding and head (BF16)", BF16 * 2 * vocabulary * hidden, 0, tp),
        _part("router, norms, streams", 4 * model.layers * (moe["experts"] + 24 * 4 + 8) * hidden, 0, 1),
        _vision(model, tp),
    ]
    if spec == "mtp":
        layer = routed + expert + queries + latent + out + downs + 2 * hidden * hidden
        parts.append(_part("MTP layer (BF16)", model["target.mtp.bytes_per_parameter"] * layer, 0, tp))
    if spec == "dflash":
        parts.append(_drafter(model, tp, dense))
    return tuple(parts)


def disk(model: Model) -> int:
    """Bytes the target should take on disk by its shapes, MTP layer included."""
    return sum(part.total for part in weights(model, 1, "mtp", padded=False))


def compare(model: Model, folder: Path) -> tuple[Row, ...]:
    """Rows about the real files in `folder`: fields that differ from model.toml, size.

    Reads config.json and model.safetensors.index.json; a missing or unreadable one is a row, not an error.
    """
    rows = [*_compare_config(model, folder), *_compare_index(model, folder)]
    return tuple(rows) or (Row("checkpoint", "ok", f"{folder.name} agrees with model.toml"),)


def _layers(name: str, count: int, linears: tuple[_Linear, ...], dense: Dense, tp: int) -> Part:
    split = count * sum(linear.bytes(dense) for linear in linears if not linear.whole)
    whole = count * sum(linear.bytes(dense) for linear in linears if linear.whole)
    return _part(name, split, whole, tp)


def _part(name: str, split: float, whole: float, tp: int) -> Part:
    return Part(name, round(split + whole), round(split / tp + whole))


def _vision(model: Model, tp: int) -> Part:
    held = model["target.vision.bytes"]
    return _part("vision tower", 0, held, tp) if model.padded(tp) else _part("vision tower", held, 0, tp)


def _drafter(model: Model, tp: int, dense: Dense) -> Part:
    heads, _ = model.drafter_heads(tp)
    grown = heads / model["drafter.heads"]  # only its attention grows; taken for all of it, on the safe side
    shrunk = DENSE_BYTES[dense][False] / BF16
    return _part(f"drafter ({dense.upper()})", model["drafter.disk_gib"] * 1024**3 * grown * shrunk, 0, tp)


# config.json's own names for what model.toml calls otherwise; looked up in the file and in its text_config.
CONFIG_NAMES = {
    "hidden_size": "target.hidden",
    "vocab_size": "target.vocabulary",
    "n_routed_experts": "target.moe.experts",
    "num_experts_per_tok": "target.moe.active",
    "n_shared_experts": "target.moe.shared",
    "moe_intermediate_size": "target.moe.width",
    "intermediate_size": "target.moe.dense_width",
    "first_k_dense_replace": "target.layers_dense",
    "num_attention_heads": "target.mla.heads",
    "q_lora_rank": "target.mla.q_rank",
    "kv_lora_rank": "target.mla.kv_rank",
    "qk_nope_head_dim": "target.mla.qk_width",
    "v_head_dim": "target.mla.v_width",
    "linear_num_heads": "target.kda.heads",
    "linear_head_dim": "target.kda.width",
    "linear_conv_kernel_dim": "target.kda.kernel",
    "index_n_heads": "target.indexer.heads",
    "index_head_dim": "target.indexer.width",
    "index_kpool": "target.indexer.pool",
    "index_topk": "target.indexer.top_k",
}


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in `path`, or None when it is missing, unreadable or no JSON object."""
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def _compare_config(model: Model, folder: Path) -> list[Row]:
    config = read_json(folder / "config.json")
    if config is None:
        return [Row("checkpoint config", "WARN", f"no readable config.json in {folder}", "the checkpoint's own")]
    text = {**config, **(config.get("text_config") or {})}
    original = {name: pair[0] for name, pair in (text.get("tp_pad_orig") or {}).get("sizes", {}).items()}
    rows = []
    for name, path in CONFIG_NAMES.items():
        seen, expected = original.get(name, text.get(name)), model[path]
        if seen is not None and seen != expected:
            cure = "the plan counts with model.toml; correct it there when the file is right"
            rows.append(Row(f"checkpoint {name}", "WARN", str(seen), str(expected), cure))
    architecture = (config.get("architectures") or [None])[0]
    if architecture != model["target.architecture"]:
        rows.append(Row("checkpoint architecture", "WARN", str(architecture), model["target.architecture"]))
    return rows


def index_files(index: bytes) -> list[str]:
    """The weight files that the text of an index names, sorted; none when it is no whole JSON object.

    It names some 150,000 tensors: reading the few names out of the text takes 30 ms, parsing the JSON 200.
    """
    whole = index.strip().startswith(b"{") and index.strip().endswith(b"}")
    names = {name.decode(errors="replace") for name in _WEIGHT_FILE.findall(index)} if whole else set()
    return sorted(names)


def _compare_index(model: Model, folder: Path) -> list[Row]:
    try:
        index = (folder / "model.safetensors.index.json").read_bytes()
    except OSError:
        index = b""
    names = index_files(index)
    if not names:
        return [Row("checkpoint index", "WARN", f"no readable model.safetensors.index.json in {folder}")]
    rows = []
    missing = [name for name in names if not (folder / name).exists()]
    if missing:
        seen = f"{len(missing)} of {len(names)} files missing, first {missing[0]}"
        rows.append(Row("checkpoint files", "FAIL", seen, "every file of the index", "finish the download"))
    found = _TOTAL_SIZE.search(index)
    total = int(found.group(1)) if found else None
    if total is not None and abs(total - disk(model)) > 0.05 * disk(model):
        expected = f"{disk(model) / 1024**3:.1f} GiB by the shapes of model.toml"
        rows.append(Row("checkpoint bytes", "WARN", f"{total / 1024**3:.1f} GiB", expected))
    return rows
