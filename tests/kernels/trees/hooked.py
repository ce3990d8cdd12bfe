"""Run inside a vLLM tree: hook the overlays, call what they hooked with a stubbed device, say what ran.

vLLM's own classes are used; what needs a GPU (the kernels, the stock backend, the model's loading) is replaced.
"""

import json
import os
from types import SimpleNamespace
from typing import Any

import torch
from vllm.model_executor.layers.fused_moe.oracle.nvfp4 import NvFp4MoeBackend
from vllm.model_executor.layers.linear import LinearBase, UnquantizedLinearMethod
from vllm.model_executor.layers.quantization.modelopt import ModelOptNvFp4FusedMoE
from vllm.model_executor.layers.quantization.utils.flashinfer_fp4_moe import reorder_w1w3_to_w3w1
from vllm.model_executor.layers.quantization.utils.nvfp4_utils import swizzle_blockscale
from vllm.model_executor.model_loader.base_loader import BaseModelLoader

from experimental import plugin
from experimental.nvfp4.layout import swizzle, up_then_gate

said: dict[str, Any] = {}
ran: list[str] = []


def note(what: str, result: Any = None) -> Any:
    """Remember that something ran."""
    ran.append(what)
    return result


def linear(rows: int, k: int) -> LinearBase:
    """A linear layer as vLLM leaves it after loading, without the distributed state its constructor wants."""
    layer = LinearBase.__new__(LinearBase)
    torch.nn.Module.__init__(layer)
    layer.weight = torch.nn.Parameter(torch.randn(rows, k).bfloat16(), requires_grad=False)
    layer.quant_method = UnquantizedLinearMethod.__new__(UnquantizedLinearMethod)
    return layer


class Block(torch.nn.Module):  # type: ignore[misc]
    """The names that decide which layer becomes what."""

    def __init__(self) -> None:
        super().__init__()
        self.o_proj, self.qkv = linear(72, 256), linear(40, 128)
        self.gate, self.odd = linear(16, 128), linear(16, 96)


model = torch.nn.Module()
model.layer = Block()
weight = model.layer.qkv.weight.clone()
BaseModelLoader.load_model = lambda self, *arguments, **named: model


def stock_process(self: Any, layer: Any) -> None:
    """As the backend does: gate's global alone is kept, the input scale folded into it."""
    layer.w13_weight_scale_2 = SimpleNamespace(data=layer.w13_weight_scale_2.data[:, 0] * 3.0)


ModelOptNvFp4FusedMoE.process_weights_after_loading = stock_process
ModelOptNvFp4FusedMoE.apply = lambda *arguments: note("stock", "stock")
mine = ("nvfp4", "dense_fp8", "dense_w4", "moe_decode")
for data in plugin.switched_on(plugin.ROOM, {}):
    if data["name"] not in mine:
        os.environ[data["switch"]] = "0"
plugin.register()
plugin.register()  # vLLM may load its plugins more than once

from experimental.dense_fp8 import hook as fp8_hook  # noqa: E402
from experimental.dense_w4 import hook as w4_hook  # noqa: E402
from experimental.moe_decode import hook as moe_hook  # noqa: E402

BaseModelLoader.load_model(None)
said["methods"] = {name: type(layer.quant_method).__name__ for name, layer in model.layer.named_children()}
fp8 = model.layer.qkv.quant_method
said["fp8 error"] = float(
    ((fp8.weight.float() * fp8.scale[:, None])[:40] - weight.float()).norm() / weight.float().norm()
)
setattr(w4_hook, "product", lambda *arguments: note("w4"))  # noqa: B010
setattr(fp8_hook, "quantise", lambda *arguments: None)  # noqa: B010
setattr(fp8_hook, "product", lambda *arguments: note("fp8"))  # noqa: B010
large = lambda self, x: note("large", x.new_empty(x.shape[0], self.rows))  # noqa: E731
setattr(fp8_hook.Fp8Method, "large", large)  # noqa: B010
said["dense"] = {}
for name in ("o_proj", "qkv"):
    layer = getattr(model.layer, name)
    k = layer.quant_method.k
    for tokens in (1, 32, 33, 64, 65):
        ran.clear()
        out = layer.quant_method.apply(layer, torch.zeros(tokens, k, dtype=torch.bfloat16))
        assert out.shape == (tokens, layer.quant_method.rows)
        said["dense"][f"{name} {tokens}"] = ran[:]


def experts(backend: Any = NvFp4MoeBackend.FLASHINFER_CUTLASS, **other: Any) -> tuple[Any, Any]:
    """A layer and its method before process_weights_after_loading."""
    fields = {
        "w13_weight": torch.zeros(4, 256, 64, dtype=torch.uint8),
        "w13_weight_scale": torch.ones(4, 256, 8).to(torch.float8_e4m3fn),
        "w2_weight": torch.zeros(4, 128, 64, dtype=torch.uint8),
        "w2_weight_scale": torch.zeros(4, 128, 8, dtype=torch.uint8),
        "w13_weight_scale_2": torch.tensor([[1.0, 2.0]] * 4),
        "w2_weight_scale_2": torch.full((4,), 5.0),
    }
    held = {name: SimpleNamespace(data=value) for name, value in fields.items()}
    layer = SimpleNamespace(
        **held, expert_map=None, activation=SimpleNamespace(name="SILU"), apply_router_weight_on_input=False,
        swiglu_limit=10.0, top_k=2,
    )  # fmt: skip
    layer.w13_weight = torch.nn.Parameter(fields["w13_weight"], requires_grad=False)
    layer.w2_weight = torch.nn.Parameter(fields["w2_weight"], requires_grad=False)
    for name, value in other.items():
        setattr(layer, name, value)
    return layer, SimpleNamespace(nvfp4_backend=backend, moe=SimpleNamespace(is_act_and_mul=True))


ours = lambda *arguments, **named: note(f"ours limit={named['limit']} scaling={named['scaling']}")  # noqa: E731
setattr(moe_hook, "moe", ours)  # noqa: B010
layer, method = experts()
ModelOptNvFp4FusedMoE.process_weights_after_loading(method, layer)
made = layer._glm53_moe_decode.experts
said["globals"] = {"up": made.up.tolist(), "gate": made.gate.tolist(), "down": made.down.tolist()}
blocks = made.s13.view(torch.float8_e4m3fn).float()[0, :, 0]  # gate rows first: the stand-in reorders nothing
said["whole scales"] = {"gate": float(blocks[0] * made.gate[0]), "up": float(blocks[-1] * made.up[0])}
said["moe"] = {}
shared = lambda x, order: note(f"shared {order.name}")  # noqa: E731
for tokens in (1, 16, 17):
    ran.clear()
    x = torch.zeros(tokens, 128, dtype=torch.bfloat16)
    ids, weights = torch.zeros(tokens, 2, dtype=torch.int64), torch.zeros(tokens, 2)
    ModelOptNvFp4FusedMoE.apply(method, layer, x, weights, ids, shared, x)
    said["moe"][str(tokens)] = ran[:]
for what, other in (
    ("backend", {"backend": NvFp4MoeBackend.MARLIN}),
    ("expert parallel", {"expert_map": torch.zeros(4)}),
    ("activation", {"activation": SimpleNamespace(name="GELU")}),
):
    layer, method = experts(**other)
    ModelOptNvFp4FusedMoE.process_weights_after_loading(method, layer)
    ran.clear()
    ModelOptNvFp4FusedMoE.apply(method, layer, x[:1], weights[:1], ids[:1], None, None)
    said["moe"][what] = ran[:]

torch.Tensor.cuda = lambda self: self  # vLLM swizzles on the GPU
scales = torch.randint(0, 120, (2, 256, 8), dtype=torch.uint8)
theirs = swizzle_blockscale(scales.view(torch.float8_e4m3fn)).view(torch.uint8)
said["swizzle is vLLM's"] = torch.equal(theirs.reshape(2, 256, 8), swizzle(scales))
w13 = torch.randint(0, 255, (2, 8, 4), dtype=torch.uint8)
said["row order is vLLM's"] = torch.equal(reorder_w1w3_to_w3w1(w13.clone(), w13.clone())[0], up_then_gate(w13))
print("SAID " + json.dumps(said))
