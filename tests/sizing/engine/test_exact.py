"""Zero padding changes no result: GLM's three kinds of layer, a tiny GLM and a tiny dense model, padded and not.

In fp64 the comparison is bit for bit. Every product is summed in the order of its terms (`dot`, `InOrder`), so that a
library's blocking, which differs between widths, cannot hide behind a tolerance: what is left is the padding alone.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from experimental.tp_pad.hook import pad_tensor, pad_weights, vocabulary_step
from launcher.verbs.pad import run as pad

SIZES = {"num_attention_heads": (4, 6), "linear_num_heads": (4, 6), "moe_intermediate_size": (32, 48)}
HEADS, WIDTH, HIDDEN, EXPERTS, INNER = 4, 8, 32, 5, 32
Weights = dict[str, torch.Tensor]


def dot(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """x @ weight.T, summed term by term in order."""
    total = torch.zeros(*x.shape[:-1], weight.shape[0], dtype=x.dtype)
    for column in range(weight.shape[1]):
        total = total + x[..., column, None] * weight[:, column]
    return total


class InOrder(TorchDispatchMode):  # type: ignore[misc]  # torch is not in the environment that checks types
    """Within it every matrix product of torch is summed term by term in order; counts them."""

    PRODUCTS = ("mm", "bmm", "addmm", "baddbmm")

    def __init__(self) -> None:
        super().__init__()
        self.products = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name not in self.PRODUCTS:
            return func(*args, **(kwargs or {}))
        assert not kwargs
        self.products += 1
        left, right = args[-2:]
        total = args[0] if name in ("addmm", "baddbmm") else 0
        for term in range(left.shape[-1]):
            total = total + left[..., term, None] * right[..., term, None, :]
        return total


def padded(weights: Weights) -> Weights:
    return dict(pad_weights(weights.items(), SIZES))


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def kda_weights(layer: str) -> Weights:
    wide = HEADS * WIDTH
    table = {f"{layer}.self_attn.{name}_proj.weight": normal(wide, HIDDEN) for name in "qkv"}
    table |= {f"{layer}.self_attn.{name}_conv1d.weight": normal(wide, 1, 4) for name in "qkv"}
    return table | {
        f"{layer}.self_attn.b_proj.weight": normal(HEADS, HIDDEN),
        f"{layer}.self_attn.f_a_proj.weight": normal(WIDTH, HIDDEN),
        f"{layer}.self_attn.g_a_proj.weight": normal(WIDTH, HIDDEN),
        f"{layer}.self_attn.f_b_proj.weight": normal(wide, WIDTH),
        f"{layer}.self_attn.g_b_proj.weight": normal(wide, WIDTH),
        f"{layer}.self_attn.dt_bias": normal(wide),
        f"{layer}.self_attn.A_log": normal(HEADS),
        f"{layer}.self_attn.o_norm.weight": normal(WIDTH),
        f"{layer}.self_attn.o_proj.weight": normal(HIDDEN, wide),
    }


def kda(x: torch.Tensor, weights: Weights, layer: str) -> torch.Tensor:
    """Gated delta rule with short convolutions, one recurrent state [K, V] a head."""
    w = {name.removeprefix(f"{layer}.self_attn."): tensor for name, tensor in weights.items()}
    heads, tokens = w["A_log"].numel(), x.shape[0]

    def mixed(name: str) -> torch.Tensor:
        rows = torch.cat([torch.zeros(3, heads * WIDTH, dtype=x.dtype), dot(x, w[f"{name}_proj.weight"])])
        taps = w[f"{name}_conv1d.weight"][:, 0]
        summed = torch.zeros(tokens, heads * WIDTH, dtype=x.dtype)
        for tap in range(4):
            summed = summed + rows[tap : tap + tokens] * taps[:, tap]
        return torch.nn.functional.silu(summed).view(tokens, heads, WIDTH)

    q, k = (part / (part.square().sum(-1, keepdim=True) + 1e-6).sqrt() for part in (mixed("q"), mixed("k")))
    v, beta = mixed("v"), torch.sigmoid(dot(x, w["b_proj.weight"]))
    decay = dot(dot(x, w["f_a_proj.weight"]), w["f_b_proj.weight"]) + w["dt_bias"]
    decay = -torch.exp(w["A_log"])[:, None] * torch.nn.functional.softplus(decay).view(tokens, heads, WIDTH)
    state = torch.zeros(heads, WIDTH, WIDTH, dtype=x.dtype)
    out = []
    for t in range(tokens):
        state = state * torch.exp(decay[t])[:, :, None]
        seen = (state * k[t][:, :, None]).sum(1)
        state = state + k[t][:, :, None] * (beta[t][:, None] * (v[t] - seen))[:, None, :]
        out.append((state * q[t][:, :, None]).sum(1))
    o = torch.stack(out)
    o = o / (o.square().mean(-1, keepdim=True) + 1e-6).sqrt() * w["o_norm.weight"]
    gate = dot(dot(x, w["g_a_proj.weight"]), w["g_b_proj.weight"]).view(tokens, heads, WIDTH)
    return dot((o * torch.sigmoid(gate)).reshape(tokens, -1), w["o_proj.weight"])


def mla_weights(layer: str) -> Weights:
    shapes = {
        "q_a_proj": (12, HIDDEN), "q_b_proj": (HEADS * WIDTH, 12), "kv_a_proj_with_mqa": (16, HIDDEN),
        "kv_b_proj": (HEADS * 2 * WIDTH, 16), "o_proj": (HIDDEN, HEADS * WIDTH),
    }  # fmt: skip
    return {f"{layer}.self_attn.{name}.weight": normal(*shape) for name, shape in shapes.items()}


def mla(x: torch.Tensor, weights: Weights, layer: str) -> torch.Tensor:
    """Latent attention without a rotary part, causal."""
    w = {name.split(".")[-2]: tensor for name, tensor in weights.items() if name.startswith(layer)}
    tokens = x.shape[0]
    q = dot(dot(x, w["q_a_proj"]), w["q_b_proj"]).view(tokens, -1, WIDTH)
    k, v = dot(dot(x, w["kv_a_proj_with_mqa"]), w["kv_b_proj"]).view(tokens, -1, 2 * WIDTH).split(WIDTH, -1)
    scores = (q[:, None] * k[None]).sum(-1) * WIDTH**-0.5
    future = torch.triu(torch.ones(tokens, tokens, dtype=torch.bool), 1)
    chance = scores.masked_fill(future[:, :, None], -torch.inf).softmax(1)
    return dot((chance[..., None] * v[None]).sum(1).reshape(tokens, -1), w["o_proj"])


def nvfp4(rows: int, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Packed numbers, two a byte, and one e4m3 scale per 16."""
    packed = torch.randint(0, 256, (rows, columns // 2), dtype=torch.uint8)
    return packed, (torch.rand(rows, columns // 16) + 0.1).to(torch.float8_e4m3fn)


def unpacked(packed: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    values = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=torch.float64)
    codes = torch.stack([packed & 15, packed >> 4], -1).flatten(-2).long()
    return torch.where(codes >= 8, -1.0, 1.0) * values[codes & 7] * scale.double().repeat_interleave(16, -1)


def moe_weights(layer: str) -> Weights:
    table = {f"{layer}.mlp.gate.weight": normal(EXPERTS, HIDDEN)}
    for expert in [f"experts.{number}" for number in range(EXPERTS)]:
        for name, shape in (
            ("gate_proj", (INNER, HIDDEN)),
            ("up_proj", (INNER, HIDDEN)),
            ("down_proj", (HIDDEN, INNER)),
        ):
            packed, scale = nvfp4(*shape)
            table[f"{layer}.mlp.{expert}.{name}.weight"] = packed
            table[f"{layer}.mlp.{expert}.{name}.weight_scale"] = scale
            table[f"{layer}.mlp.{expert}.{name}.weight_scale_2"] = torch.tensor(0.37, dtype=torch.float64)
    for name, shape in (("gate_proj", (INNER, HIDDEN)), ("up_proj", (INNER, HIDDEN)), ("down_proj", (HIDDEN, INNER))):
        table[f"{layer}.mlp.shared_experts.{name}.weight"] = normal(*shape)
    return table


def moe(x: torch.Tensor, weights: Weights, layer: str) -> torch.Tensor:
    """Top 2 of the routed experts and the shared one, SwiGLU clamped at 10."""

    def expert(name: str) -> torch.Tensor:
        def matrix(part: str) -> torch.Tensor:
            weight = weights[f"{layer}.mlp.{name}.{part}.weight"]
            if weight.dtype != torch.uint8:
                return weight
            scale = weights[f"{layer}.mlp.{name}.{part}.weight_scale"]
            return unpacked(weight, scale) * weights[f"{layer}.mlp.{name}.{part}.weight_scale_2"]

        gate = dot(x, matrix("gate_proj")).clamp(max=10)
        up = dot(x, matrix("up_proj")).clamp(-10, 10)
        return dot(torch.nn.functional.silu(gate) * up, matrix("down_proj"))

    chance = torch.sigmoid(dot(x, weights[f"{layer}.mlp.gate.weight"]))
    best = torch.zeros_like(chance).scatter(1, chance.topk(2).indices, 1) * chance
    total = expert("shared_experts")
    for number in range(EXPERTS):
        total = total + best[:, number, None] * expert(f"experts.{number}")
    return total


@pytest.mark.parametrize(("make", "layer_of"), [(kda_weights, kda), (mla_weights, mla), (moe_weights, moe)])
def test_a_padded_layer_gives_the_same_bits_in_fp64(make: Any, layer_of: Any) -> None:
    torch.manual_seed(53)
    weights = make("model.layers.3")
    grown = padded(weights)
    assert any(grown[name].shape != weights[name].shape for name in weights)
    x = normal(9, HIDDEN)
    plain = layer_of(x, weights, "model.layers.3")
    assert plain.abs().max() > 0.1
    assert torch.equal(plain, layer_of(x, grown, "model.layers.3"))


def test_old_bytes_stay_and_new_ones_are_zero() -> None:
    torch.manual_seed(1)
    for name, tensor in {**kda_weights("l"), **mla_weights("l"), **moe_weights("l")}.items():
        grown = dict(pad_weights([(name, tensor)], SIZES))[name]
        assert grown.dtype == tensor.dtype
        corner = tuple(slice(0, length) for length in tensor.shape)
        kind = torch.uint8 if tensor.element_size() == 1 else tensor.dtype
        assert torch.equal(grown.view(kind)[corner], tensor.view(kind)), name
        assert int((grown.view(kind) != 0).sum()) == int((tensor.view(kind) != 0).sum()), name


def test_a_wrong_corner_would_be_seen() -> None:
    """The comparison can fail: a head in another place, or something else than zero, changes the result."""
    torch.manual_seed(2)
    weights = mla_weights("l")
    x = normal(5, HIDDEN)
    plain = mla(x, weights, "l")
    for spoil in ("o_proj", "kv_b_proj"):
        grown = padded(weights)
        name = f"l.self_attn.{spoil}.weight"
        grown[name] = grown[name].roll(WIDTH, 1 if spoil == "o_proj" else 0)
        assert not torch.equal(plain, mla(x, grown, "l"))


def test_fp8_and_packed_bytes_are_copied_as_bytes() -> None:
    scale = torch.tensor([[1.5, 448.0]]).to(torch.float8_e4m3fn)
    grown = pad_tensor(scale, (2, 3))
    assert grown.dtype == torch.float8_e4m3fn
    assert grown.float().tolist() == [[1.5, 448.0, 0.0], [0.0, 0.0, 0.0]]


def test_the_vocabulary_is_rounded_so_that_it_divides() -> None:
    assert [vocabulary_step(64, tp) for tp in (1, 2, 3, 4, 6)] == [64, 64, 192, 64, 192]
    assert -(-154880 // vocabulary_step(64, 3)) * vocabulary_step(64, 3) == 154944


def tiny_glm(folder: Path) -> None:
    """The model's own architecture, random and tiny: 6 KDA and 2 MLA layers, 3 dense, 8 experts."""
    from transformers.models.glm5_next.configuration_glm5_next import Glm5NextTextConfig
    from transformers.models.glm5_next.modeling_glm5_next import Glm5NextTextModel

    torch.manual_seed(53)
    config = Glm5NextTextConfig(
        vocab_size=384, hidden_size=64, intermediate_size=96, moe_intermediate_size=32, num_hidden_layers=8,
        num_attention_heads=4, num_key_value_heads=4, n_routed_experts=8, kv_lora_rank=16, q_lora_rank=24,
        v_head_dim=16, qk_nope_head_dim=16, num_experts_per_tok=2, index_topk=16, index_head_dim=16, index_n_heads=2,
        index_kpool=4, linear_head_dim=16, linear_num_heads=4, pad_token_id=0, initializer_range=0.3,
    )  # fmt: skip
    Glm5NextTextModel(config).save_pretrained(folder)


def pad_glm(source: Path, target: Path) -> None:
    """What the load hook sees and does: checkpoint names, one tensor after the other."""
    from safetensors.torch import load_file, save_file

    target.mkdir()
    weights = load_file(source / "model.safetensors")
    grown = dict(pad_weights(weights.items(), SIZES))
    changed = {name.split(".", 2)[2] for name in grown if grown[name].shape != weights[name].shape}
    assert {"self_attn.A_log", "self_attn.q_b_proj.weight", "mlp.experts.0.down_proj.weight"} <= changed
    save_file(grown, target / "model.safetensors", {"format": "pt"})
    config = json.loads((source / "config.json").read_text())
    counts = {key: padded for key, (_, padded) in SIZES.items()}
    config |= {**counts, "num_key_value_heads": counts["num_attention_heads"]}
    (target / "config.json").write_text(json.dumps(config))


def tiny_dense(folder: Path) -> None:
    """The drafter's kind: a random Qwen3 whose 8 and 2 heads and inner width of 160 do not divide by 3 or 6."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(53)
    config = Qwen3Config(
        hidden_size=64, num_attention_heads=8, num_key_value_heads=2, head_dim=16, intermediate_size=160,
        num_hidden_layers=2, vocab_size=384, max_position_embeddings=256, initializer_range=0.3,
        bos_token_id=1, eos_token_id=2, tie_word_embeddings=False,
    )  # fmt: skip
    Qwen3ForCausalLM(config).save_pretrained(folder)


def hidden(folder: Path, dtype: torch.dtype) -> Callable[[torch.Tensor], torch.Tensor]:
    """Logits of the model in `folder`; GLM's text model has no head of its own and gets one from a seed."""
    from transformers import AutoModel, AutoModelForCausalLM

    options: dict[str, Any] = {"dtype": dtype, "attn_implementation": "eager"}
    if json.loads((folder / "config.json").read_text())["model_type"] != "glm5_next_text":
        dense = AutoModelForCausalLM.from_pretrained(folder, **options).eval()
        return lambda prompt: dense(prompt, use_cache=False).logits
    body = AutoModel.from_pretrained(folder, experts_implementation="eager", **options).eval()
    head = torch.randn(384, 64, generator=torch.Generator().manual_seed(7), dtype=torch.float64).to(dtype)
    return lambda prompt: body(prompt, use_cache=False).last_hidden_state @ head.T


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Path]]:
    root = tmp_path_factory.mktemp("tiny")
    tiny_glm(root / "glm")
    pad_glm(root / "glm", root / "glm-padded")
    tiny_dense(root / "dense")
    made = {"glm": (root / "glm", root / "glm-padded")}
    for tp in ("3", "6"):
        assert pad([str(root / "dense"), str(root / f"tp{tp}"), "--tp", tp]) == 0
        made[f"dense tp{tp}"] = (root / "dense", root / f"tp{tp}")
    return made


PROMPT = torch.arange(3, 30)[None] * 5 % 384
torch.set_num_threads(1)  # tiny products: threads only wait for each other


@pytest.mark.parametrize("name", ["glm", "dense tp3", "dense tp6"])
def test_a_padded_model_computes_what_the_unpadded_does(folders: dict[str, tuple[Path, Path]], name: str) -> None:
    """fp64: the same bits when sums keep their order, rounding at most when the libraries multiply as they please."""
    with torch.no_grad(), InOrder() as order:
        bits = [hidden(folder, torch.float64)(PROMPT) for folder in folders[name]]
    assert order.products > 20
    assert torch.equal(bits[0], bits[1])
    with torch.inference_mode():
        exact = [hidden(folder, torch.float64)(PROMPT) for folder in folders[name]]
        assert exact[0].dtype == torch.float64
        assert exact[0].abs().max() > 1
        # GLM computes its states in fp32 whatever the model's type: so far apart are two orders of the same sums.
        assert (exact[0] - bits[0]).abs().max() < 1e-4 * exact[0].abs().max()
        assert (exact[0] - exact[1]).abs().max() < 1e-11 * exact[0].abs().max()
        single = [hidden(folder, torch.float32)(PROMPT) for folder in folders[name]]
        assert (single[0] - single[1]).abs().max() < 1e-4 * single[0].abs().max()


@pytest.mark.parametrize("name", ["glm", "dense tp3", "dense tp6"])
def test_greedy_text_in_bf16_is_the_same(folders: dict[str, tuple[Path, Path]], name: str) -> None:
    texts = []
    for folder in folders[name]:
        answer, text = hidden(folder, torch.bfloat16), PROMPT
        with torch.inference_mode():
            for _ in range(16):
                text = torch.cat([text, answer(text)[:, -1:].argmax(-1)], 1)
        texts.append(text)
    assert torch.equal(texts[0], texts[1])
    assert len(set(texts[0][0, PROMPT.shape[1] :].tolist())) > 4, "a text that says something"
