"""Sparse MLA in plain torch, over a flat cache."""

from __future__ import annotations

import torch


def reference(
    q: torch.Tensor,
    kv: torch.Tensor,
    idx: torch.Tensor,
    lens: torch.Tensor,
    sm_scale: float,
    kv_scale: float = 1.0,
    dtype: torch.dtype = torch.float64,
) -> torch.Tensor:
    """The same in plain torch over a flat cache, in `dtype` throughout: [T, H, 512]."""
    if kv.dtype == torch.uint8:
        kv = kv.view(torch.float8_e4m3fn)
    values = kv.to(torch.float32).to(dtype) * kv_scale
    outputs = []
    for token in range(q.shape[0]):
        rows = idx[token, : int(lens[token])].long()
        rows = rows[rows >= 0]
        if len(rows) == 0:
            outputs.append(torch.zeros((q.shape[1], q.shape[2]), dtype=dtype, device=q.device))
            continue
        picked = values[rows]
        weight = torch.softmax(q[token].to(dtype) @ picked.T * sm_scale, dim=-1)
        outputs.append(weight @ picked)
    return torch.stack(outputs) if outputs else q.to(dtype)
