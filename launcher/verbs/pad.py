"""`./glm53 pad SRC DST [--tp 3|6]`: make a checkpoint whose heads divide, by zero padding (exact).

The big checkpoint: DST holds hard links to SRC's files and a config.json with the padded sizes; the weights are padded
as they are loaded (experimental/tp_pad). A dense model such as the drafter is small: its weights are written padded.
Interrupted, it continues where it ended; config.json comes last, so a folder without one is not finished.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import model as facts
from core.refusal import Refusal
from core.units import show_seconds, show_size
from experimental.tp_pad.rules import DENSE, MARK, DoesNotDivide, Sizes, padded_shape
from launcher.safetensors import Unreadable, grow, layout, read_header

WEIGHTS = ".safetensors"
INDEX = "model.safetensors.index.json"
CONFIG = "config.json"
SAY_EVERY_S = 5.0


def run(arguments: list[str]) -> int:
    """Exit status 0 when DST is whole; refusals are raised."""
    parser = argparse.ArgumentParser(prog="glm53 pad", description=__doc__)
    parser.add_argument("source", metavar="SRC", type=Path, help="the checkpoint as downloaded")
    parser.add_argument("target", metavar="DST", type=Path, help="the folder to make")
    parser.add_argument("--tp", type=int, choices=(3, 6), default=3)
    options = parser.parse_args(arguments)
    print("\n".join(make(options.source.resolve(), options.target.resolve(), options.tp)))
    return 0


def make(source: Path, target: Path, tp: int) -> list[str]:
    """Make `target`; returns what there is to say about it. Raises Refusal."""
    config = facts.read_json(source / CONFIG)
    if config is None:
        raise Refusal("SRC", f"{source} without a readable {CONFIG}", "a checkpoint's folder", f"ls -l {source}")
    _judge(source, target, config)
    big = facts.load()["target.architecture"] in (config.get("architectures") or [])
    holder = _holder(config)
    sizes = target_sizes(config[holder] if holder else config, tp) if big else dense_sizes(config, tp)
    if not sizes:
        seen = f"{source.name} divides by {tp} as it is"
        raise Refusal("SRC", seen, "a checkpoint that needs padding", f"Use {source} itself.")
    padded = padded_config(config, holder, sizes, tp, "original" if big else "padded")
    if (target / CONFIG).exists():
        return _finished(target, padded)
    started = time.monotonic()
    target.mkdir(parents=True, exist_ok=True)
    if big:
        _link(source, target)
    else:
        _grow(source, target, sizes)
    _write_last(target / CONFIG, padded)
    changed = ", ".join(f"{key} {old} -> {new}" for key, (old, new) in sizes.items())
    took = show_seconds(time.monotonic() - started)
    knob = "MODEL_HOST_DIR" if big else "DFLASH_HOST_DIR"
    return [
        f"{target}: padded for TP={tp} ({changed}) in {took}",
        f"Set {knob}={target} in compose/.env on every box.",
    ]


def target_sizes(config: dict[str, Any], tp: int) -> dict[str, tuple[int, int]]:
    """Counts of the big checkpoint that grow: heads and expert width to what model.toml names for 3 and 6."""
    model = facts.load()
    wanted = {
        "num_attention_heads": int(model["padding.heads"]),
        "linear_num_heads": int(model["padding.heads"]),
        "moe_intermediate_size": int(model["padding.width"]),
    }
    defaults = {
        "num_attention_heads": model["target.mla.heads"],
        "linear_num_heads": model["target.kda.heads"],
        "moe_intermediate_size": model["target.moe.width"],
    }
    sizes = {key: (int(config.get(key, defaults[key])), new) for key, new in wanted.items()}
    if all(old % tp == 0 for old, _ in sizes.values()):
        return {}
    # MLA has no key-value heads of its own, but the config class wants the counts equal; 64 where the file is silent.
    stored = int(config.get("num_key_value_heads") or sizes["num_attention_heads"][0])
    return {**sizes, "num_key_value_heads": (stored, int(model["padding.heads"]))}


def dense_sizes(config: dict[str, Any], tp: int) -> dict[str, tuple[int, int]]:
    """Counts of a dense model that grow: key-value heads to a multiple of tp, the same queries for each of them."""
    queries = int(config["num_attention_heads"])
    keys = int(config.get("num_key_value_heads") or queries)
    inner = int(config["intermediate_size"])
    sizes = {}
    if keys % tp:
        grown = -(-keys // tp) * tp
        sizes["num_key_value_heads"] = (keys, grown)
        sizes["num_attention_heads"] = (queries, queries // keys * grown)
    if inner % tp:
        sizes["intermediate_size"] = (inner, -(-inner // (64 * tp)) * 64 * tp)
    return sizes


def padded_config(config: dict[str, Any], holder: str | None, sizes: Sizes, tp: int, stored: str) -> dict[str, Any]:
    """config.json with the padded counts, and the original ones under tp_pad_orig; `stored` says how weights lie."""
    text = dict(config[holder]) if holder else dict(config)
    heads = int(text.get("num_attention_heads") or 0)
    if not holder and heads and not text.get("head_dim"):  # else it would follow from the padded count
        text["head_dim"] = int(text["hidden_size"]) // heads
    text |= {key: new for key, (_, new) in sizes.items()}
    nested = text.get("linear_attn_config")
    if isinstance(nested, dict) and "linear_num_heads" in sizes:  # the older spelling wins where both stand
        text["linear_attn_config"] = {**nested, "num_heads": sizes["linear_num_heads"][1]}
    text[MARK] = {"tp": tp, "stored": stored, "sizes": {key: list(pair) for key, pair in sizes.items()}}
    return {**config, holder: text} if holder else text


def _holder(config: dict[str, Any]) -> str | None:
    inner = config.get("text_config")
    return "text_config" if isinstance(inner, dict) and "num_attention_heads" in inner else None


def _judge(source: Path, target: Path, config: dict[str, Any]) -> None:
    if target == source or source in target.parents or target in source.parents:
        raise Refusal("DST", str(target), "a folder beside SRC", f"./glm53 pad {source} {source}-tp3")
    if MARK in {**config, **(config.get("text_config") or {})}:
        raise Refusal("SRC", f"{source}, which is padded already", "the checkpoint as downloaded", "Name that one.")
    parent = next(folder for folder in (target, *target.parents) if folder.exists())
    if not parent.is_dir():
        raise Refusal("DST", f"{parent} is a file", "a folder", f"ls -l {parent}")
    for path in files(source):
        if path.resolve().stat().st_dev != parent.stat().st_dev:
            seen = f"{target} on another file system than {path}"
            raise Refusal("DST", seen, "the same one: hard links do not cross", f"./glm53 pad {source} {source}-tp3")
    known = {path.relative_to(source) for path in files(source)}
    for path in files(target) if target.is_dir() else ():
        name = path.relative_to(target)
        if name not in known and name.with_name(name.name.removesuffix(".part")) not in known:
            raise Refusal(
                "DST", f"{path}, which SRC does not have", "an empty folder or one begun by pad", "Name another."
            )


def files(folder: Path) -> Iterator[Path]:
    """Files of a checkpoint, sorted; hidden folders (.git, .cache) are none of it."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts):
            yield path


def _finished(target: Path, padded: dict[str, Any]) -> list[str]:
    if facts.read_json(target / CONFIG) == padded:
        return [f"{target}: padded already, nothing to do"]
    raise Refusal("DST", f"{target}, made from something else", "an empty folder", "Name another folder.")


def _link(source: Path, target: Path) -> None:
    for path in files(source):
        name = path.relative_to(source)
        if str(name) == CONFIG:
            continue
        place, real = target / name, path.resolve()  # a Hugging Face cache holds links: link the file itself
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.exists():
            if place.samefile(real):
                continue
            raise Refusal("DST", f"{place}, another file than SRC's", "an empty folder", "Name another folder.")
        os.link(real, place)


def _grow(source: Path, target: Path, sizes: Sizes) -> None:
    shards = [path for path in files(source) if path.suffix == WEIGHTS]
    if not shards:
        raise Refusal("SRC", f"{source} without safetensors files", "a model in safetensors", f"ls -l {source}")

    def reshape(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        return padded_shape(name, shape, sizes, DENSE)

    try:
        total = _check_space(shards, target, reshape)
        say = _Say(sum(path.stat().st_size for path in shards))
        for path in shards:
            place = target / path.relative_to(source)
            place.parent.mkdir(parents=True, exist_ok=True)
            if place.exists():
                say(path.stat().st_size)
            else:
                grow(path, place, reshape, say)
    except (Unreadable, DoesNotDivide) as error:
        raise Refusal("SRC", str(error), "a dense model's weights", f"Download {source.name} again.") from None
    for path in files(source):
        name = path.relative_to(source)
        if path.suffix != WEIGHTS and str(name) not in (CONFIG, INDEX):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target / name)
    index = facts.read_json(source / INDEX)
    if index is not None:
        _write_last(target / INDEX, {**index, "metadata": {**(index.get("metadata") or {}), "total_size": total}})


def _check_space(shards: list[Path], target: Path, reshape: Any) -> int:
    """Bytes of all tensors once grown. Raises Refusal when the disk has less room."""
    total, needed = 0, 0
    for path in shards:
        _, grown = layout(*read_header(path), reshape)
        total += sum(growth.target.end - growth.target.start for growth in grown)
        end = grown[-1].target.end if grown else 0
        needed += 0 if (target / path.name).exists() else end
    free = shutil.disk_usage(target).free
    have = sum(path.stat().st_blocks * 512 for path in shards)  # sparse files stay sparse
    if free < min(needed, have * 2):
        raise Refusal(
            "DST", f"{show_size(free)} free", f"{show_size(needed)}", "Make room, or name another disk's SRC."
        )
    return total


class _Say:
    """Progress on stderr: bytes read so far, every few seconds."""

    def __init__(self, total: int) -> None:
        self.total, self.done = total, 0
        self.started = self.said = time.monotonic()

    def __call__(self, count: int) -> None:
        self.done += count
        now = time.monotonic()
        if now - self.said >= SAY_EVERY_S:
            self.said = now
            rate = self.done / max(0.001, now - self.started)
            left = show_seconds((self.total - self.done) / max(1.0, rate))
            text = f"padding: {show_size(self.done)} of {show_size(self.total)}, {show_size(int(rate))}/s, {left} left"
            print(text, file=sys.stderr, flush=True)


def _write_last(path: Path, value: dict[str, Any]) -> None:
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n")
    part.rename(path)
