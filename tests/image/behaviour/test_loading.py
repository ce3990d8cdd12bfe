"""Loading experts: which entries a tensor can match, and one global scale for gate and up."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from vllm.glm53_fused_scales import reconcile
from vllm.model_executor.layers.fused_moe.routed_experts import RoutedExperts
from vllm.model_executor.layers.quantization import modelopt

EXPERTS = 288


# --- the index of the expert table -------------------------------------------------------------------------------


class Parameter:
    """Records what is loaded into it."""

    quant_method = None

    def __init__(self, name: str, seen: list[Any]) -> None:
        self.name, self.seen = name, seen

    def weight_loader(self, **given: Any) -> bool:
        self.seen.append((self.name, given["shard_id"], given["expert_id"], float(given["loaded_weight"].sum())))
        return True


def loaded(names: list[str], redundant: int = 0, fused: bool = False) -> list[Any]:
    """Run the real RoutedExperts.load_weights over tensors of these names."""
    table = RoutedExperts.build_expert_params_mapping(
        "gate_proj", "down_proj", "up_proj", EXPERTS, redundant, routed_experts_prefix="", include_fused=True
    )
    seen: list[Any] = []
    layer = SimpleNamespace(
        layer_name="model.layers.3.mlp.experts",
        get_expert_mapping=lambda include_fused: table,
        is_fused_checkpoint_transposed=False,
        _orient_fused_weight=lambda weight, transposed: weight,
        **{name: Parameter(name, seen) for name in ("w13_weight", "w2_weight", "w13_weight_scale", "w2_weight_scale")},
    )
    shape = (2, 4, 2) if fused else (2, 2)
    tensors = [(name, torch.full(shape, float(number))) for number, name in enumerate(names)]
    list(RoutedExperts.load_weights(layer, tensors))
    return seen


@pytest.mark.parametrize("redundant", [0, 32])
def test_every_expert_is_loaded_into_every_replica(redundant: int) -> None:
    parts = ("gate_proj.weight", "up_proj.weight", "down_proj.weight", "down_proj.weight_scale")
    names = [f"{expert}.{part}" for expert in range(EXPERTS) for part in parts]
    seen = loaded(names, redundant)
    assert len(seen) == (EXPERTS + redundant) * len(parts)
    assert len(set(seen)) == len(seen)
    # Expert 12's tensors hold 48, 49, 50, 51 in each of four places; they reach physical expert 12 (and its replica).
    for place, (name, shard) in enumerate([("w13_weight", "w1"), ("w13_weight", "w3"), ("w2_weight", "w2")]):
        physical = {
            number for found, kind, number, total in seen if (found, kind, total) == (name, shard, 4 * (48 + place))
        }
        assert 12 in physical
        assert len(physical) == (2 if redundant > 12 else 1)


def test_the_index_never_loses_a_match(version: str) -> None:
    """Against the whole table, for placed, fused, nested and ambiguous names (0.30.0 has the index from us)."""
    if version != "0.30.0":
        assert hasattr(
            __import__("vllm.model_executor.layers.fused_moe.routed_experts", fromlist="x"), "_index_expert_mapping"
        )
        return
    from vllm.glm53_expert_index import ExpertIndex

    table = RoutedExperts.build_expert_params_mapping(
        "gate_proj", "down_proj", "up_proj", EXPERTS, 32, routed_experts_prefix="", include_fused=True
    )
    index = ExpertIndex(table)
    base = "model.layers.3.mlp.experts."
    names = [f"{base}{expert}.{part}.weight" for expert in (0, 1, 12, 287) for part in ("gate_proj", "down_proj")]
    names += [f"{base}gate_up_proj", f"{base}down_proj", f"{base}w13_weight", "shared_experts.1.gate_proj.weight"]
    names += [f"{base}0.experts.7.gate_proj.weight", f"{base}999.gate_proj.weight"]
    for name in names:
        for fused in (False, True):
            whole = [entry for entry in table if entry[1] in name]
            assert [entry for entry in index.candidates(name, fused) if entry[1] in name] == whole
    assert len(index.candidates(f"{base}12.gate_proj.weight", False)) < 20


def test_a_table_of_another_shape_is_scanned_whole(version: str) -> None:
    if version != "0.30.0":
        return
    from vllm.glm53_expert_index import ExpertIndex

    table = [("w13_", "experts.0.gate.", 0, "w1"), ("w2_", "somewhere.else.", 0, "w2")]
    assert ExpertIndex(table).candidates("experts.1.gate.weight", False) == table


# --- one global scale --------------------------------------------------------------------------------------------

E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
ROWS, COLUMNS, BLOCK = 6, 64, 16


def experts(count: int, equal: bool) -> tuple[Any, torch.Tensor]:
    """A layer of NVFP4 experts, and its weights dequantised with each half's own global scale."""
    draw = torch.Generator().manual_seed(3)
    codes = torch.randint(0, 16, (count, 2 * ROWS, COLUMNS), generator=draw)
    values = E2M1[codes % 8] * torch.where(codes >= 8, -1.0, 1.0)
    # What ModelOpt writes: the largest block scale of a half fills e4m3's range, others go down from there.
    blocks = (torch.rand(count, 2 * ROWS, COLUMNS // BLOCK, generator=draw) * 440 + 8).to(torch.float8_e4m3fn)
    gate = torch.rand(count, generator=draw) * 1e-4 + 1e-4
    ratio = torch.ones(count) if equal else torch.where(torch.arange(count) % 3 == 0, 1.0, 1.4)
    globals_ = torch.stack((gate, gate * ratio), dim=1)
    globals_[1::2] = globals_[1::2].flip(1)
    layer = SimpleNamespace(
        layer_name="model.layers.3.mlp.experts",
        w13_weight_scale=torch.nn.Parameter(blocks, requires_grad=False),
        w13_weight_scale_2=torch.nn.Parameter(globals_, requires_grad=False),
        values=values,
    )
    return layer, dequantised(layer)


def dequantised(layer: Any) -> torch.Tensor:
    """values x block scale x the half's own global scale."""
    blocks = layer.w13_weight_scale.float().repeat_interleave(BLOCK, dim=2)
    halves = layer.w13_weight_scale_2.repeat_interleave(ROWS, dim=1)
    product: torch.Tensor = layer.values * blocks * halves[:, :, None]
    return product


def test_both_halves_keep_their_weights_within_e4m3() -> None:
    layer, before = experts(24, equal=False)
    report = reconcile(layer, gated=True)
    assert report is not None
    assert (report.experts, report.differing) == (24, 16)
    assert report.factor == pytest.approx(1.4, rel=1e-3)
    assert torch.equal(layer.w13_weight_scale_2[:, 0], layer.w13_weight_scale_2[:, 1])
    after = dequantised(layer)
    error = ((after - before).abs() / before.abs().clamp_min(1e-12))[before != 0]
    assert 0 < error.max() <= 1 / 16, "half a step of a 3-bit mantissa"
    assert report.rounding == pytest.approx(float(error.max()), rel=0.05)


def test_what_stock_does_to_the_up_projection() -> None:
    """The reason for the patch: with the gate's global alone the up projection is off by the whole factor."""
    layer, before = experts(24, equal=False)
    layer.w13_weight_scale_2.data[:, 1] = layer.w13_weight_scale_2.data[:, 0]
    up = slice(ROWS, None)
    error = (dequantised(layer)[:, up] - before[:, up]).abs() / before[:, up].abs().clamp_min(1e-12)
    assert error[before[:, up] != 0].max() > 0.25


def test_equal_globals_are_left_bit_for_bit() -> None:
    layer, _ = experts(24, equal=True)
    blocks, globals_ = layer.w13_weight_scale.view(torch.uint8).clone(), layer.w13_weight_scale_2.clone()
    report = reconcile(layer, gated=True)
    assert report is not None
    assert report.differing == 0
    assert torch.equal(layer.w13_weight_scale.view(torch.uint8), blocks)
    assert torch.equal(layer.w13_weight_scale_2, globals_)


def test_off_and_not_applicable(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, before = experts(6, equal=False)
    assert reconcile(layer, gated=False) is None
    monkeypatch.setenv("W13_RECONCILE", "0")
    assert reconcile(layer, gated=True) is None
    assert torch.equal(dequantised(layer), before)


def test_the_kernel_gets_the_reconciled_scales(monkeypatch: pytest.MonkeyPatch) -> None:
    """Through the real process_weights_after_loading, up to the conversion for a GPU kernel."""
    layer, before = experts(24, equal=False)
    for name in (
        "w13_weight",
        "w13_input_scale",
        "w2_weight",
        "w2_weight_scale",
        "w2_weight_scale_2",
        "w2_input_scale",
    ):
        setattr(layer, name, torch.nn.Parameter(torch.zeros(1), requires_grad=False))
    given: dict[str, Any] = {}

    class Stop(Exception):
        pass

    def convert(**arguments: Any) -> None:
        given.update(arguments)
        raise Stop

    monkeypatch.setattr(modelopt, "convert_to_nvfp4_moe_kernel_format", convert)
    method = modelopt.ModelOptNvFp4FusedMoE.__new__(modelopt.ModelOptNvFp4FusedMoE)
    method.moe = SimpleNamespace(is_act_and_mul=True)
    method.nvfp4_backend, method.use_a16 = None, False
    method.per_token_activation = False  # asked for from 0.32.0 on
    with pytest.raises(Stop):
        method.process_weights_after_loading(layer)
    blocks = given["w13_scale"].float().repeat_interleave(BLOCK, dim=2)
    served = layer.values * blocks * given["w13_scale_2"][:, None, None]
    torch.testing.assert_close(served, before, rtol=1 / 16, atol=0)
