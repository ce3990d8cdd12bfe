"""What the drafters need from the model: hidden states between layers, and an MTP layer that loads as BF16."""

import importlib
import json
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from vllm.model_executor.layers.quantization.modelopt import ModelOptNvFp4Config
from vllm.model_executor.models.interfaces import supports_eagle3

STREAMS, HIDDEN, TOKENS, LAYERS = 4, 8, 5, 6


def package(version: str) -> str:
    return "vllm.models.glm5next." + ("nvidia" if version == "0.30.0" else "common")


@pytest.fixture(scope="module")
def model(version: str) -> ModuleType:
    return importlib.import_module(package(version) + ".model")


def hc_post(x: torch.Tensor, streams: torch.Tensor, post: torch.Tensor, comb: torch.Tensor) -> torch.Tensor:
    """Hyper-connection: stream j = post_j x + sum_i comb_ij stream_i, in plain torch."""
    return post[:, :, None] * x[:, None, :] + torch.einsum("tij,tih->tjh", comb, streams)


class Layer:
    """A decoder layer reduced to its hyper-connection: it hands its own hc_post on to the next, as the real one."""

    def __init__(self, index: int, last: bool) -> None:
        draw = torch.Generator().manual_seed(index)
        self.n, self.index, self.last = STREAMS, index, last
        self.weight = torch.randn(HIDDEN, HIDDEN, generator=draw)
        self.post = torch.rand(TOKENS, STREAMS, generator=draw)
        self.comb = torch.rand(TOKENS, STREAMS, STREAMS, generator=draw)

    def hc_post(self, *state: torch.Tensor) -> torch.Tensor:
        return hc_post(*state)

    def __call__(self, positions: Any, x: Any, residual: Any, post: Any, comb: Any) -> tuple[Any, ...]:
        streams = x[:, None, :].expand(-1, STREAMS, -1) if post is None else hc_post(x, residual, post, comb)
        out = torch.tanh(streams.mean(dim=1) @ self.weight)
        if self.last:
            return hc_post(out, streams, self.post, self.comb).mean(dim=1), None, None, None
        return out, streams, self.post, self.comb


def reference(layers: list[Layer], x: torch.Tensor) -> list[torch.Tensor]:
    """The contracted stream before layer 0, 1, ... and after the last, nothing deferred."""
    streams = x[:, None, :].expand(-1, STREAMS, -1)
    seen = [streams.mean(dim=1)]
    for layer in layers:
        out = torch.tanh(streams.mean(dim=1) @ layer.weight)
        streams = hc_post(out, streams, layer.post, layer.comb)
        seen.append(streams.mean(dim=1))
    return seen


@pytest.fixture
def network(model: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The real forward of Glm5NextModel around such layers."""
    rank = SimpleNamespace(is_first_rank=True, is_last_rank=True, world_size=1)
    monkeypatch.setattr(model, "get_pp_group", lambda: rank)
    made = model.Glm5NextModel.__new__(model.Glm5NextModel)
    torch.nn.Module.__init__(made)
    object.__setattr__(made, "_active_layers", [Layer(index, index == LAYERS - 1) for index in range(LAYERS)])
    object.__setattr__(made, "norm", lambda hidden: hidden)
    object.__setattr__(made, "_aux_post_op", hc_post)  # what 0.32.0 completes a stream with
    made.start_layer, made.end_layer, made.is_sequence_parallel = 0, LAYERS, False
    made.config = SimpleNamespace(hc_mult=STREAMS)
    return made


def test_aux_hidden_states_are_the_completed_streams(network: Any) -> None:
    x = torch.randn(TOKENS, HIDDEN)
    expected = reference(network._active_layers, x)
    network._set_aux_hidden_state_layers((1, 3, LAYERS))
    hidden, aux = network.forward(None, torch.arange(TOKENS), None, x)
    torch.testing.assert_close(hidden, expected[LAYERS])
    assert len(aux) == 3
    for found, layer in zip(aux, (1, 3, LAYERS), strict=True):
        torch.testing.assert_close(found, expected[layer])


def test_without_aux_layers_the_answer_is_one_tensor(network: Any) -> None:
    x = torch.randn(TOKENS, HIDDEN)
    hidden = network.forward(None, torch.arange(TOKENS), None, x)
    torch.testing.assert_close(hidden, reference(network._active_layers, x)[LAYERS])


def test_sequence_parallel_shards_are_gathered(network: Any, model: ModuleType, monkeypatch: Any) -> None:
    """With one rank a shard is the whole; the gather pads, and the padding must not reach the drafter."""
    monkeypatch.setattr(model, "sp_shard", lambda x: x)
    monkeypatch.setattr(model, "sp_all_gather", lambda x: torch.cat((x, torch.full_like(x[:2], torch.nan))))
    network.is_sequence_parallel = True
    x = torch.randn(TOKENS, HIDDEN)
    expected = reference(network._active_layers, x)
    network._set_aux_hidden_state_layers((2, LAYERS))
    _, aux = network.forward(None, torch.arange(TOKENS), None, x)
    for found, layer in zip(aux, (2, LAYERS), strict=True):
        torch.testing.assert_close(found, expected[layer])


def test_both_model_classes_say_so(model: ModuleType) -> None:
    assert supports_eagle3(model.Glm5NextForCausalLM)
    assert supports_eagle3(model.Glm5NextForConditionalGeneration)


# --- MTP ---------------------------------------------------------------------------------------------------------


def a_config(folder: Path, quant_config: Any) -> Any:
    draft = SimpleNamespace(
        model=str(folder),
        hf_config=SimpleNamespace(hidden_size=8, rms_norm_eps=1e-6, index_topk=2048, index_kpool=4, vocab_size=16),
    )
    draft.hf_text_config = draft.hf_config
    return SimpleNamespace(
        quant_config=quant_config,
        speculative_config=SimpleNamespace(draft_model_config=draft),
        model_config=SimpleNamespace(model=str(folder)),
        scheduler_config=SimpleNamespace(max_num_batched_tokens=4),
    )


def nvfp4() -> ModelOptNvFp4Config:
    config = {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16, "ignore": ["lm_head"]}
    return ModelOptNvFp4Config.from_config(config)


def checkpoint(folder: Path, *, scales: bool) -> Path:
    names = [f"model.language_model.layers.45.mlp.experts.{expert}.down_proj.weight" for expert in range(4)]
    names += [f"model.language_model.layers.44.mlp.experts.{expert}.down_proj.weight_scale" for expert in range(4)]
    if scales:
        names.append("model.language_model.layers.45.mlp.experts.0.down_proj.weight_scale")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": dict.fromkeys(names, "a")}))
    return folder


@pytest.fixture
def built(version: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Builds the real MTP layer with its parts replaced; says whether its experts would be quantised."""
    module = importlib.import_module(package(version) + ".mtp")
    seen: list[bool] = []

    class Part(torch.nn.Module):  # type: ignore[misc]
        def __init__(self, *_: Any, vllm_config: Any = None, prefix: str = "", **__: Any) -> None:
            super().__init__()
            if vllm_config is not None:
                quant = vllm_config.quant_config
                seen.append(not quant.is_layer_excluded(f"{prefix}.mlp.experts"))
                seen.append(not quant.is_layer_excluded("language_model.model.layers.44.mlp.experts"))

    for name in ("RMSNorm", "SharedHead", "Glm5NextDecoderLayer"):
        monkeypatch.setattr(module, name, Part)

    def build(config: Any) -> tuple[bool, bool]:
        seen.clear()
        module.Glm5NextMultiTokenPredictorLayer(config, "model.layers.45")
        return seen[0], seen[1]

    return build


def test_a_layer_without_scales_is_built_unquantised(built: Any, tmp_path: Path) -> None:
    config = a_config(checkpoint(tmp_path, scales=False), nvfp4())
    assert built(config) == (False, True)
    assert built(config) == (False, True)
    assert config.quant_config.exclude_modules.count("model.layers.45.*") == 1


def test_a_layer_with_scales_stays_quantised(built: Any, tmp_path: Path) -> None:
    assert built(a_config(checkpoint(tmp_path, scales=True), nvfp4())) == (True, True)


def test_without_an_index_nothing_is_guessed(built: Any, tmp_path: Path) -> None:
    assert built(a_config(tmp_path, nvfp4())) == (True, True)
    (tmp_path / "model.safetensors.index.json").write_text("{")
    assert built(a_config(tmp_path, nvfp4())) == (True, True)
