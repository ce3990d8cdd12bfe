"""Pads weights as vLLM reads them, and lets the vocabulary divide: for checkpoints made by `./glm53 pad`.

Does nothing for any other model: what to do stands in the model's config.json.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from experimental.tp_pad.rules import TARGET, Sizes, padded_shape, recorded, sizes_of

_DONE = "_glm53_tp_pad"


def pad_tensor(tensor: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """`tensor` in the first corner of zeros of `shape`; one-byte kinds (fp8, packed fp4) are copied as bytes."""
    if tuple(tensor.shape) == shape:
        return tensor
    out = torch.zeros(shape, dtype=tensor.dtype, device=tensor.device)
    corner = tuple(slice(0, length) for length in tensor.shape)
    if tensor.element_size() == 1:
        out.view(torch.uint8)[corner] = tensor.view(torch.uint8)
    else:
        out[corner] = tensor
    return out


def pad_weights(weights: Iterable[tuple[str, torch.Tensor]], sizes: Sizes) -> Iterator[tuple[str, torch.Tensor]]:
    """The same names with padded tensors, one at a time. Raises rules.DoesNotDivide."""
    for name, tensor in weights:
        yield name, pad_tensor(tensor, padded_shape(name, tuple(tensor.shape), sizes, TARGET))


def vocabulary_step(padding: int, tp: int) -> int:
    """What the vocabulary is rounded up to, so that `tp` divides it; unchanged where it does already."""
    return padding if padding % tp == 0 else math.lcm(padding, tp)


def register() -> None:
    """Hook the loader and the embedding; a second call does nothing."""
    from vllm.distributed import get_tensor_model_parallel_world_size
    from vllm.model_executor.layers.vocab_parallel_embedding import VocabParallelEmbedding
    from vllm.model_executor.model_loader.default_loader import DefaultModelLoader

    if getattr(DefaultModelLoader, _DONE, False):
        return
    read = DefaultModelLoader.get_all_weights
    build = VocabParallelEmbedding.__init__

    def get_all_weights(self: Any, model_config: Any, model: Any) -> Iterator[tuple[str, torch.Tensor]]:
        record = recorded(model_config.hf_config)
        weights: Iterator[tuple[str, torch.Tensor]] = read(self, model_config, model)
        if record is None or record["stored"] == "padded":
            return weights
        return pad_weights(weights, sizes_of(record))

    def initialise(self: Any, *arguments: Any, **named: Any) -> None:
        # padding_size is the fifth argument, by place (ParallelLMHead) or by name.
        if not named.get("disable_tp") and named.get("parallel_group") is None:
            tp = get_tensor_model_parallel_world_size()
            if len(arguments) > 4:
                arguments = (*arguments[:4], vocabulary_step(arguments[4], tp), *arguments[5:])
            else:
                named["padding_size"] = vocabulary_step(named.get("padding_size", 64), tp)
        build(self, *arguments, **named)

    DefaultModelLoader.get_all_weights = get_all_weights
    VocabParallelEmbedding.__init__ = initialise
    setattr(DefaultModelLoader, _DONE, True)
