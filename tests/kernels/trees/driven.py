"""Run inside a vLLM tree: drive sparse_mla, topk, head_gate, causal_conv and mhc through vLLM's own classes on CPU.

Kernels run in Triton's interpreter. What vLLM needs a GPU for (its own kernels, its planner, FlashInfer) is replaced
by a few lines of torch or by a note that it was called.
"""
# ruff: noqa: E402

import importlib
import json
import os
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, patch

os.environ["TRITON_INTERPRET"] = "1"

import torch

from tests.fixtures.absent import TORCHVISION, stand_in

stand_in(*TORCHVISION)
import vllm.model_executor.layers.mamba.ops.causal_conv1d as stock_conv
import vllm.tilelang_utils as tilelang_utils
from vllm.model_executor.model_loader.base_loader import BaseModelLoader
from vllm.platforms import current_platform

from experimental import plugin
from experimental.mhc.reference import random_inputs
from experimental.mhc.reference import reference as mhc_reference
from experimental.sparse_mla.reference import reference as mla_reference
from experimental.topk.reference import reference as topk_reference

said: dict[str, Any] = {}
ran: list[str] = []
OURS = ("nvfp4", "sparse_mla", "topk", "head_gate", "causal_conv", "mhc")
tilelang_utils.tilelang = MagicMock()
with patch.object(type(current_platform), "is_cpu", lambda self: False):  # else it ends with its CPU functions
    importlib.reload(stock_conv)


class ReachedError(Exception):
    """The place after a hooked line: what follows there needs a GPU."""


def note(what: str, result: Any = None) -> Any:
    """Remember that something ran."""
    ran.append(what)
    return result


def reached(*arguments: Any, **named: Any) -> Any:
    """Stands for the call after a hooked line."""
    raise ReachedError


def taken() -> list[str]:
    """What ran since the last time."""
    out = ran[:]
    ran.clear()
    return out


def error(got: torch.Tensor, want: torch.Tensor) -> float:
    """Relative Frobenius error."""
    return float((got.double() - want.double()).norm() / want.double().norm())


# A model with mHC weights: bf16 holds those of `attn` exactly, and not those of `ffn`.
HIDDEN = 128
inputs = {tokens: random_inputs(tokens, HIDDEN, "cpu", seed=tokens) for tokens in (3, 33)}
model = torch.nn.Module()
model.layer = torch.nn.Module()
exact = inputs[3][4].float().reshape(24, 4 * HIDDEN)
model.layer.hc_attn_fn = torch.nn.Parameter(exact.clone(), requires_grad=False)
model.layer.hc_ffn_fn = torch.nn.Parameter(exact + 2.0**-20, requires_grad=False)
BaseModelLoader.load_model = lambda self, *arguments, **named: model

for data in plugin.switched_on(plugin.ROOM, {}):
    if data["name"] not in OURS:
        os.environ[data["switch"]] = "0"
plugin.register()
plugin.register()  # vLLM may load its plugins more than once


def drive_mhc() -> dict[str, Any]:
    """vLLM's fused post and pre step by number of tokens and weight."""
    from vllm.model_executor.kernels.mhc import tilelang, tilelang_kernels

    left: list[str] = []
    with patch("experimental.mhc.hook.logger.warning", lambda text, *words: left.append(text % words)):
        BaseModelLoader.load_model(None)
    kernels: Any = tilelang_kernels
    kernels.mhc_fused_tilelang = lambda *arguments, **named: note("stock fused")
    kernels._MHC_POST_TILELANG_KERNEL = lambda *arguments: note("stock post")
    seen: dict[str, torch.Tensor] = {}

    def rest(mixes: torch.Tensor, squares: torch.Tensor, scale: Any, base: Any, residual: torch.Tensor, *_: Any,
             **named: Any) -> None:  # fmt: skip
        seen.update(mixes=mixes, squares=squares, residual=residual)

    kernels._MHC_PRE_BIG_FUSE_TILELANG_KERNEL = rest
    any_tilelang: Any = tilelang
    any_tilelang._hc_prenorm_gemm_outputs = lambda *arguments, **named: note("stock product", (None, None))
    out: dict[str, Any] = {"left": [line.removeprefix("glm53 overlay mhc: ") for line in left]}
    for tokens, place in ((3, "hc_attn_fn"), (3, "hc_ffn_fn"), (33, "hc_attn_fn")):
        comb, residual, post, x, _ = inputs[tokens]
        scale, base = torch.ones(3), torch.zeros(24)
        fn = getattr(model.layer, place)
        tilelang.mhc_fused_post_pre_tilelang(
            x, residual, post[..., None], comb, fn, scale, base, 1e-6, 1e-6, 1e-6, 2.0, 3,
            norm_weight=torch.ones(HIDDEN).bfloat16(),
        )  # fmt: skip
        out[f"{place} {tokens}"] = taken()
        if tokens == 3 and place == "hc_attn_fn":
            want = mhc_reference(comb, residual, post, x, exact.view(24, 4, HIDDEN), 1)
            out["error"] = max(error(seen["mixes"], want[0]), error(seen["squares"], want[1]))
            out["residual error"] = error(seen["residual"], want[2])
    warm = kernels.MhcFusedTileLangKernel.CompileKey(HIDDEN, 4, 1, 2, 128)
    kernels._MHC_FUSED_TILELANG_KERNEL.launch = lambda *arguments: note("warmed up")
    kernels._MHC_FUSED_TILELANG_KERNEL.compile(warm)
    out["warm-up"] = taken()
    return out


def proposed(logits: torch.Tensor, starts: torch.Tensor, ends: torch.Tensor, out: torch.Tensor, k: int) -> None:
    """As vLLM's kernels: the k best of each row in any order, ties broken anyhow."""
    for row, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        order = torch.randperm(end - start)
        best = order[logits[row, start:end][order].sort(descending=True, stable=True).indices[:k]]
        out[row, : len(best)] = best.int()


def drive_topk() -> dict[str, Any]:
    """The whole of sparse_attn_indexer_kpool on given scores, prefill and decode, twice with other candidates."""
    from vllm.model_executor.layers import indexer_topk
    from vllm.models.glm5next.nvidia import sparse_indexer
    from vllm.utils import deep_gemm
    from vllm.v1.attention.backends.mla.indexer import DeepseekV32IndexerMetadata

    def prefill(logits: Any, starts: Any, ends: Any, out: Any, rows: int, stride_r: int, stride_c: int, k: int) -> None:
        note(f"prefill asked for {k}")
        proposed(logits, starts, ends, out, k)

    def decode(logits: Any, next_n: int, lens: Any, out: Any, rows: int, stride_r: int, stride_c: int, k: int) -> None:
        note(f"decode asked for {k}")
        ends = indexer_topk.SparseIndexerTopk._row_ends(lens, next_n, rows)
        proposed(logits, torch.zeros_like(ends), ends, out, k)

    for space in (torch.ops._C, indexer_topk.ops):
        space.top_k_per_row_prefill = prefill
        space.top_k_per_row_decode = decode
    rows, width, k = 3, 90, 16
    logits = torch.randint(0, 4, (rows, width)).float()
    ends = torch.tensor([width, 20, 7], dtype=torch.int32)
    starts = torch.zeros_like(ends)
    wide: Any = deep_gemm
    wide.fp8_fp4_mqa_logits = wide.fp8_fp4_paged_mqa_logits = lambda *arguments, **named: logits
    indexer: Any = sparse_indexer
    indexer.current_workspace_manager = lambda: SimpleNamespace(
        get_simultaneous=lambda *specs: [torch.zeros(4, 4, dtype=torch.uint8) for _ in specs]
    )
    indexer.kv_cache_as_quant_view = lambda cache, *arguments: cache
    chunk = SimpleNamespace(
        token_start=0, token_end=rows, cu_seqlen_ks=starts, cu_seqlen_ke=ends, skip_kv_gather=True, total_seq_lens=4,
        local_total_seq_lens=4, max_local_total_seq_lens=4, local_cu_seq_lens=starts, cu_seq_lens=starts,
    )  # fmt: skip
    meta = DeepseekV32IndexerMetadata.__new__(DeepseekV32IndexerMetadata)
    vars(meta).update(slot_mapping=torch.arange(rows), max_seq_len=width)
    indexer.get_forward_context = lambda: SimpleNamespace(attn_metadata={"layer": meta})

    def run(backend: str, *, prefill: bool) -> torch.Tensor:
        vars(meta).update(
            num_decodes=0 if prefill else rows, num_decode_tokens=0 if prefill else rows, num_prefills=int(prefill),
            prefill=SimpleNamespace(chunks=[chunk], max_prefill_seq_len=10_000),
            decode=SimpleNamespace(
                decode_lens=torch.ones(rows, dtype=torch.int32), requires_padding=False, seq_lens=ends[:, None],
                block_table=None, schedule_metadata=None, indices=None,
            ),
        )  # fmt: skip
        buffer = torch.full((rows, 2 * k), -9, dtype=torch.int32)
        hidden = torch.zeros(rows, 4)
        out = sparse_indexer.sparse_attn_indexer_kpool(
            hidden, "layer", torch.zeros(1), torch.zeros(rows, 2, 4), None, hidden, torch.zeros(rows, 2), 128, None, k,
            128, width, 4, buffer, True, topk_backend=backend,
        )  # fmt: skip
        assert bool((out[:, k:] == -1).all())
        return out[:, :k].clone()

    want = topk_reference(logits, starts, ends, k)
    out: dict[str, Any] = {"patched": importlib.util.find_spec("vllm.glm53_topk") is not None}
    for name, prefilling in (("prefill", True), ("decode", False)):
        got = [run("auto", prefill=prefilling) for _ in range(3)]
        out[name] = all(torch.equal(one, want) for one in got)
        out[f"{name} asked"] = sorted(set(taken()))
    indexer_topk.SparseIndexerTopk.resolve_backend = lambda self, *arguments: note(f"stock {self._backend}", "torch")
    run("torch", prefill=False)
    out["another backend"] = taken()
    os.environ["DETERMINISTIC_TOPK"] = "0"
    run("auto", prefill=True)
    out["switched off"] = taken()
    return out


def drive_sparse_mla() -> dict[str, Any]:
    """The backend's forward_mqa on e4m3 rows, and its builder, for a layer that is served and one that is not."""
    from vllm.v1.attention.backends.mla import flashinfer_mla_sparse_sm90 as stock
    from vllm.v1.attention.backends.mla.flashinfer_mla_sparse import FlashInferMLASparseMetadataBuilder

    block, blocks, topk, tokens, heads = 4, 6, 32, 2, 3
    between = 2 if hasattr(stock, "flat_kv_row_view") else 0  # rows of other layers between this one's blocks
    raw = torch.full((blocks * (block + between), 512), 0x7F, dtype=torch.uint8)  # NaN
    cache = raw.as_strided((blocks, block, 512), ((block + between) * 512, 512, 1))
    cache.copy_(torch.randn(blocks, block, 512).to(torch.float8_e4m3fn).view(torch.uint8))
    table = torch.tensor([[3, 1], [0, 5]], dtype=torch.int32)
    chosen = torch.full((tokens, topk), -1, dtype=torch.int32)
    chosen[0, :3] = torch.tensor([0, 5, 7])
    chosen[1, :5] = torch.tensor([1, 2, 3, 4, 6])

    def converted(request: torch.Tensor, table: torch.Tensor, picked: torch.Tensor, *, BLOCK_SIZE: int,
                  NUM_TOPK_TOKENS: int, return_valid_counts: bool, BLOCK_STRIDE_ROWS: int = 0) -> Any:  # fmt: skip
        rows = table[request.long()[:, None], picked.clamp(min=0).long() // BLOCK_SIZE]
        slots = rows * (BLOCK_STRIDE_ROWS or BLOCK_SIZE) + picked % BLOCK_SIZE
        return torch.where(picked < 0, -1, slots).int(), (picked >= 0).sum(1).int()

    backend: Any = stock
    backend.triton_convert_req_index_to_global_index = converted
    impl = stock.FlashInferMLASparseSM90Impl.__new__(stock.FlashInferMLASparseSM90Impl)
    vars(impl).update(
        kv_lora_rank=512, qk_rope_head_dim=0, head_size=512, num_heads=heads, kv_cache_dtype="fp8_e4m3",
        use_fp8_kv_cache=True, scale=1 / 16,
    )  # fmt: skip
    impl.topk_indices_buffer = chosen
    meta = SimpleNamespace(
        block_size=block, req_id_per_token=torch.arange(tokens), block_table=table, state=MagicMock()
    )
    q = torch.randn(tokens, heads, 512).bfloat16()
    layer = SimpleNamespace(_k_scale_float=0.5)
    got, _ = impl.forward_mqa((q, q[..., :0]), cache, meta, layer)
    slots, counts = converted(meta.req_id_per_token, table, chosen, BLOCK_SIZE=block, NUM_TOPK_TOKENS=topk,
                              return_valid_counts=True)  # fmt: skip
    want = mla_reference(q, cache.reshape(-1, 512).contiguous(), slots, counts, 1 / 16, 0.5)
    out: dict[str, Any] = {"error": error(got, want), "planner's buffers": meta.state.pack_indices.called}

    base: Any = FlashInferMLASparseMetadataBuilder
    made = stock.FlashInferMLASparseSM90Metadata.__new__(stock.FlashInferMLASparseSM90Metadata)
    vars(made).update(num_prefills=0)
    base.build = lambda self, *arguments: made
    builder = stock.FlashInferMLASparseSM90Builder.__new__(stock.FlashInferMLASparseSM90Builder)
    state = SimpleNamespace(
        device=torch.device("cpu"), topk_width=topk, plan=lambda *arguments: note("planned"), mark=1
    )
    vars(builder).update(_attention_layer=SimpleNamespace(impl=impl), state=state)
    any_builder: Any = builder
    any_builder._kv_lens_host = lambda meta: (1, [1], True)
    out["build"] = [any_builder.build(0, None).state is state, *taken()]
    impl.num_heads = 65
    out["build of a layer with 65 heads"] = [any_builder.build(0, None).state is state, *taken()]
    meta.state.wrapper.run = lambda *arguments, **named: note("stock attention", q)
    impl.num_heads = heads
    impl.kv_cache_dtype, impl.use_fp8_kv_cache = "int8", False
    impl.forward_mqa((q, q[..., :0]), cache, meta, layer)
    out["another cache"] = taken()
    return out


def drive_head_gate() -> dict[str, Any]:
    """Indexer.forward up to the line after the gate."""
    from vllm.models.glm5next.common import attention

    module: Any = attention
    gates: list[torch.Tensor] = []
    ours = module._glm53_head_gate
    module._glm53_head_gate = lambda *arguments: gates.append(ours(*arguments))
    module._fused_indexer_k_norm = reached
    indexer = attention.Indexer.__new__(attention.Indexer)
    torch.nn.Module.__init__(indexer)
    weight = torch.randn(128 + 16, 64).bfloat16()

    class Projection(torch.nn.Module):  # type: ignore[misc]
        """As vLLM's linear layers: a pair comes back."""

        def __init__(self, weight: torch.Tensor) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(weight, requires_grad=False)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, None]:
            return x @ self.weight.T, None

    any_indexer: Any = indexer
    any_indexer.wq_b, any_indexer.wk_weights_proj = Projection(torch.zeros(16 * 128, 8).bfloat16()), Projection(weight)
    any_indexer.n_head, any_indexer.head_dim = 16, 128
    any_indexer.k_norm, any_indexer._wp_fp32 = SimpleNamespace(weight=None, bias=None, eps=0.0), None
    hidden = torch.randn(5, 64).bfloat16()
    try:
        attention.Indexer.forward(indexer, hidden, torch.zeros(5, 8).bfloat16(), None, None)
    except ReachedError:
        note("reached")
    return {"ran": taken(), "error": error(gates[0], hidden.double() @ weight[128:].double().T),
            "no fp32 copy": any_indexer._wp_fp32 is None}  # fmt: skip


def drive_conv() -> dict[str, Any]:
    """The KDA layer's forward up to its convolution, with prefills and with decodes only."""
    from vllm.models.glm5next.common import kda
    from vllm.v1.attention.backends.gdn_attn import GDNAttentionMetadata

    module: Any = kda
    out: dict[str, Any] = {}

    def grouped(x: torch.Tensor, *arguments: Any, **named: Any) -> Any:
        note(f"grouped {tuple(x.shape)} in {named['out_groups']}")
        raise ReachedError

    def stock(*arguments: Any, **named: Any) -> Any:
        note("stock update")
        raise ReachedError

    module._glm53_grouped_conv, module.causal_conv1d_update = grouped, stock
    meta = GDNAttentionMetadata.__new__(GDNAttentionMetadata)
    fields = dict.fromkeys(
        ("has_initial_state", "non_spec_query_start_loc", "spec_sequence_masks", "spec_query_start_loc",
         "spec_state_indices_tensor", "spec_token_indx", "non_spec_token_indx", "num_accepted_tokens")
    )  # fmt: skip
    vars(meta).update(fields, num_actual_tokens=4, num_spec_decodes=0, non_spec_state_indices_tensor=torch.zeros(4))
    module.get_forward_context = lambda: SimpleNamespace(attn_metadata={"layer": meta})
    layer = SimpleNamespace(
        prefix="layer", kda_safe_gate=True, kda_lower_bound=-5.0, kv_cache=(torch.zeros(2, 3, 24), None),
        _conv_state_dim_first=False, _merged_conv_weight=torch.zeros(24, 4), q_conv1d=SimpleNamespace(bias=None),
        local_projection_size=8,
    )  # fmt: skip
    for name, prefills, decodes in (("prefill", 1, 0), ("decode", 0, 4)):
        vars(meta).update(num_prefills=prefills, num_decodes=decodes)
        try:
            kda.Glm5NextLinearAttention._forward(
                layer, torch.zeros(4, 24), torch.zeros(1, 4, 8), torch.zeros(1, 4, 1), torch.zeros(4, 8)
            )
        except ReachedError:
            out[name] = taken()
    return out


for part in (drive_sparse_mla, drive_topk, drive_head_gate, drive_conv, drive_mhc):
    said[part.__name__.removeprefix("drive_")] = part()
print("SAID " + json.dumps(said))
