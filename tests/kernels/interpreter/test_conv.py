"""The grouped convolution is made from vLLM's own source, or refused.

That its bytes are the stock ones is shown on a GPU (bench/kernels_small.py): the interpreter cannot run the stock
kernel.
"""

import pytest
import torch

from bench.kernels_small import stock_conv
from experimental.causal_conv.grouped import LAUNCHER, grouped
from experimental.edit import AnchorError
from lab.vllm import tree

SOURCE = "vllm/model_executor/layers/mamba/ops/causal_conv1d.py"


def test_another_source_is_refused() -> None:
    module = stock_conv(tree("0.32.0") / SOURCE)
    stock = getattr(module, LAUNCHER)

    def causal_conv1d_fn(x: torch.Tensor) -> torch.Tensor:
        return x

    setattr(module, LAUNCHER, causal_conv1d_fn)
    with pytest.raises(AnchorError, match="causal_conv1d_fn"):
        grouped(module)
    setattr(module, LAUNCHER, stock)
    grouped(module)
