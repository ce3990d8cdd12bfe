"""The lab's checkpoint: a tiny random Llama with a byte-level tokenizer, written with the standard library.

12 query and 12 key-value heads and an inner width of 384 split by 2, 3, 4 and 6. A second one of 8 heads does not
split by 3, as the real checkpoint does not, and is there to be padded. The weights come from a seed, so every machine
makes the same bytes. Rows of the output matrix exist for printable ASCII only: at temperature 0 the answers are
random, but readable.
"""

from __future__ import annotations

import array
import json
import random
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from launcher.paths import cache

SEED = 53
VERSION = 3  # part of the folder's name: bump when anything below changes
HEAD_DIM, LAYERS, CONTEXT = 32, 2, 2048


@dataclass(frozen=True)
class Widths:
    """What differs between the two; `vocabulary` is 64 x something: vLLM pads to 64, then splits."""

    hidden: int
    heads: int
    inner: int
    vocabulary: int


EVEN = Widths(192, 12, 384, 384)
# 8 heads, 320 and 320 do not split by 3 or 6; hidden is a multiple of the padded heads (9, 12), as transformers wants.
ODD = Widths(288, 8, 320, 320)
# The tokens after the 256 bytes; GLM's own markers are there so that its parsers can be tried in the lab.
SPECIAL = (
    "<|endoftext|>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>", "<think>", "</think>",
    "<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>",
)  # fmt: skip
CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>\n{{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)


def config(widths: Widths = EVEN) -> dict[str, object]:
    """config.json of the model."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": widths.hidden,
        "intermediate_size": widths.inner,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": widths.heads,
        "num_key_value_heads": widths.heads,
        "head_dim": HEAD_DIM,
        "hidden_act": "silu",
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "mlp_bias": False,
        "vocab_size": widths.vocabulary,
        "bos_token_id": 256,
        "eos_token_id": 256,
        "pad_token_id": 256,
        "torch_dtype": "bfloat16",
    }


def tiny(widths: Widths = EVEN) -> Path:
    """The folder of the tiny model in the cache, made on first use (under a second)."""
    folder = cache() / "models" / (f"tiny-llama-{VERSION}" + ("" if widths == EVEN else f"-{widths.heads}"))
    if not (folder / "config.json").exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        making = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".making-"))
        write(making, widths)
        try:
            making.rename(folder)
        except OSError:  # another process was faster: its bytes are the same
            shutil.rmtree(making)
    return folder


def write(folder: Path, widths: Widths = EVEN) -> None:
    """Write config, tokenizer and weights into an existing empty folder."""
    folder.chmod(0o755)
    for name, data in (
        ("tokenizer.json", _tokenizer(widths)),
        ("tokenizer_config.json", _tokenizer_config()),
        ("generation_config.json", {"bos_token_id": 256, "eos_token_id": 256, "pad_token_id": 256}),
        ("config.json", config(widths)),
    ):
        (folder / name).write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n")
    _save(folder / "model.safetensors", _weights(widths))


def shapes(widths: Widths = EVEN) -> dict[str, tuple[int, ...]]:
    """Tensor name to shape, as transformers names them."""
    hidden, inner, vocabulary = widths.hidden, widths.inner, widths.vocabulary
    table: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (vocabulary, hidden)}
    wide = widths.heads * HEAD_DIM
    for number in range(LAYERS):
        layer = f"model.layers.{number}"
        table |= {
            f"{layer}.self_attn.q_proj.weight": (wide, hidden),
            f"{layer}.self_attn.k_proj.weight": (wide, hidden),
            f"{layer}.self_attn.v_proj.weight": (wide, hidden),
            f"{layer}.self_attn.o_proj.weight": (hidden, wide),
            f"{layer}.mlp.gate_proj.weight": (inner, hidden),
            f"{layer}.mlp.up_proj.weight": (inner, hidden),
            f"{layer}.mlp.down_proj.weight": (hidden, inner),
            f"{layer}.input_layernorm.weight": (hidden,),
            f"{layer}.post_attention_layernorm.weight": (hidden,),
        }
    return table | {"model.norm.weight": (hidden,), "lm_head.weight": (vocabulary, hidden)}


def _weights(widths: Widths) -> dict[str, tuple[tuple[int, ...], array.array[float]]]:
    chance = random.Random(SEED)
    table = {}
    for name, shape in shapes(widths).items():
        if len(shape) == 1:
            values = array.array("f", [1.0]) * shape[0]
        else:
            values = array.array("f", ((chance.random() - 0.5) * 0.2 for _ in range(shape[0] * shape[1])))
        if name == "lm_head.weight":
            byte_of, hidden = _byte_characters(), widths.hidden
            for token in range(widths.vocabulary):
                if token >= 256 or not 32 <= byte_of[token][0] < 127:
                    values[token * hidden : (token + 1) * hidden] = array.array("f", [0.0]) * hidden
        table[name] = (shape, values)
    return table


def _save(path: Path, tensors: dict[str, tuple[tuple[int, ...], array.array[float]]]) -> None:
    """The safetensors format: length of a JSON header, the header, the bytes in its order."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, (shape, values) in tensors.items():
        size = 2 * len(values)
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        for _shape, values in tensors.values():
            out.write(_bfloat16(values))


def _bfloat16(values: array.array[float]) -> bytes:
    """The upper half of each float32 (little-endian, as every machine here)."""
    wide, half = values.tobytes(), bytearray(2 * len(values))
    half[0::2], half[1::2] = wide[2::4], wide[3::4]
    return bytes(half)


def _byte_characters() -> list[tuple[int, str]]:
    """Token id to (byte, the character byte-level tokenizers write for it)."""
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in visible]
    characters = {byte: chr(byte) for byte in visible} | {byte: chr(256 + n) for n, byte in enumerate(hidden)}
    return [(byte, characters[byte]) for byte in range(256)]


def _tokenizer(widths: Widths) -> dict[str, object]:
    vocabulary = {character: byte for byte, character in _byte_characters()}
    specials = SPECIAL + tuple(f"<|unused_{n}|>" for n in range(widths.vocabulary - 256 - len(SPECIAL)))
    added = [
        {"id": 256 + n, "content": text, "special": text.startswith("<|"), "single_word": False,
         "lstrip": False, "rstrip": False, "normalized": False}
        for n, text in enumerate(specials)
    ]  # fmt: skip
    bytes_in = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {
        "version": "1.0",
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": bytes_in,
        "post_processor": None,
        "decoder": bytes_in,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
    }


def _tokenizer_config() -> dict[str, object]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|endoftext|>",
        "eos_token": "<|endoftext|>",
        "pad_token": "<|endoftext|>",
        "model_max_length": CONTEXT,
        "chat_template": CHAT_TEMPLATE,
    }
