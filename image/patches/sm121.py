"""The seven edits that let compute capability 12.1 run NoPE sparse MLA (rope width 0, latent width 512).

Stock vLLM offers capability 12 a dense backend and one that wants a 64-wide rope part; the engine then dies in the
first cache write, minutes into the weight load. The SM90 backend takes NoPE, and its FA2 kernel is portable.
"""

from __future__ import annotations

from image.patches.expect import FLASHINFER, RECIPE, needed
from image.patching import Edit, Patch, Variant
from image.scopes import Text

CUDA = "vllm/platforms/cuda.py"
SM90 = "vllm/v1/attention/backends/mla/flashinfer_mla_sparse_sm90.py"
INDEXER = "vllm/models/glm5next/nvidia/sparse_indexer.py"
INDEXER_0_30 = "vllm/model_executor/layers/sparse_attn_indexer_kpool.py"
KPOOL = "vllm/models/glm5next/nvidia/ops/kpool_compress.py"
MLA_CUH = "flashinfer/data/include/flashinfer/attention/mla.cuh"
FA_PLAN = "flashinfer/mla/_batch_mla/_backends/_fa_common.py"
FA_PLAN_0_6 = "flashinfer/mla/_core.py"

ABSENT = "no fix in vLLM 0.30.0-0.33.0 (read)"
ABSENT_FI = "no fix in FlashInfer 0.6.18-0.7.2.post1 (read)"


def _buffer_edits(file: str) -> tuple[Edit, ...]:
    """The two allocations, in the prefill loop (16 spaces) and in decode (12): the indent tells them apart."""
    edits = []
    for indent in (" " * 16, " " * 12):
        edits.append(
            Edit(
                file,
                "sparse_attn_indexer_kpool",
                f"{indent}pool_topk = torch.empty(\n"
                f"{indent}    (num_rows, select_k), dtype=torch.int32, device=logits.device\n"
                f"{indent})\n",
                f"{indent}# glm53: -1 is 'no pool'; rows shorter than k must not show what lay in memory.\n"
                f"{indent}pool_topk = torch.full(\n"
                f"{indent}    (num_rows, select_k), -1, dtype=torch.int32, device=logits.device\n"
                f"{indent})\n",
            )
        )
    return tuple(edits)


def _fp8_gate(file: str, scope: str, indent: str, error: str) -> Edit:
    """The condition before the refusal; the refusal's own lines tell it from other conditions of the kind."""
    refusal = (
        f'{indent}    raise {error}(\n{indent}        "FP8 kv_data_type for MLA requires an SM90 (Hopper) device, "\n'
    )
    return Edit(
        file,
        scope,
        f"{indent}if major != 9:\n{refusal}",
        f"{indent}if major not in (9, 12):  # glm53: FA2 reads e4m3 on sm_12x too\n{refusal}",
    )


def _everywhere(name: str, title: str, why: str, *edits: Edit) -> Patch:
    """A patch that every release needs in the same words."""
    variant = Variant("0.30.0-0.33.0", edits)
    return Patch(name, title, why, ABSENT, RECIPE, (variant,), expected=needed())


PATCHES = (
    _everywhere(
        "sm121-backend-list",
        "offer the SM90 sparse MLA backend to capability 12",
        "capability 12 has no backend that takes NoPE sparse MLA: the engine dies after the weight load",
        Edit(
            CUDA,
            "_get_backend_priorities",
            "                AttentionBackendEnum.TRITON_MLA,\n"
            "                AttentionBackendEnum.FLASHINFER_MLA_SPARSE_SM120,\n"
            "            ]\n",
            "                AttentionBackendEnum.TRITON_MLA,\n"
            "                # glm53: the only one here that takes a rope width of 0\n"
            "                AttentionBackendEnum.FLASHINFER_MLA_SPARSE_SM90,\n"
            "                AttentionBackendEnum.FLASHINFER_MLA_SPARSE_SM120,\n"
            "            ]\n",
        ),
    ),
    _everywhere(
        "sm121-backend-gates",
        "let the SM90 backend run on capability 12 with FA2",
        "the backend refuses every major but 9 and asks for FA3, which is Hopper only",
        Edit(
            SM90,
            "FlashInferMLASparseSM90Backend.supports_compute_capability",
            "        return capability.major == 9\n",
            "        return capability.major in (9, 12)  # glm53: FA2 on sm_12x\n",
        ),
        Edit(
            SM90,
            "_SM90State.__init__",
            '            backend="fa3",\n',
            "            # glm53: FA3 is Hopper only, FA2 is portable to sm_12x\n"
            '            backend="fa3" if torch.cuda.get_device_capability(device)[0] == 9 else "fa2",\n',
        ),
        Edit(
            SM90,
            "FlashInferMLASparseSM90Backend.supports_combination",
            "        if not has_flashinfer_sm90_nope_mla():\n",
            "        # glm53: only fp8 caches need the per-token scale that this probe looks for\n"
            '        if str(kv_cache_dtype or "").startswith("fp8") and not (\n'
            "            has_flashinfer_sm90_nope_mla()\n"
            "        ):\n",
        ),
    ),
    _everywhere(
        "sm121-no-pdl",
        "no programmatic dependent launch on capability 12",
        "with it the KDA state is read before it is written on sm_12x: nondeterministic corruption",
        Edit(
            CUDA,
            "CudaPlatformBase.is_arch_support_pdl",
            "        return major >= 9\n",
            "        return major in (9, 10)  # glm53: on 12 a dependent launch races with the KDA state\n",
        ),
    ),
    Patch(
        name="sm121-topk-fill",
        title="fill the pool top-k buffer with -1",
        why="rows shorter than k keep whatever lay in the buffer (hygiene: not the cause of nondeterminism)",
        upstream="0.32.0 fills only the case of a rank without pools (read)",
        origin=RECIPE,
        variants=(
            Variant("0.31.0-0.33.0", _buffer_edits(INDEXER)),
            Variant("0.30.0", _buffer_edits(INDEXER_0_30)),
        ),
        expected=needed(),
    ),
    _everywhere(
        "sm121-pool-clamp",
        "accept a selected pool only inside the sequence",
        "an id past the last pool becomes a token id past the context and reaches the MLA gather",
        Edit(
            KPOOL,
            "_expand_pools_and_append_tail_kernel",
            "    hist_out = tl.where(pid >= 0, hist_val, -1)\n",
            "    # glm53: a pool counts only if the sequence has it\n"
            "    hist_out = tl.where((pid >= 0) & (pid < pool_len), hist_val, -1)\n",
        ),
    ),
    Patch(
        name="sm121-fp8-tile",
        title="FlashInfer: an fp8 KV tile no larger than the dispatched one",
        why="stock takes 32 even where shared memory allowed only 16: FA2 then does not fit GB10's 101 KB",
        upstream=ABSENT_FI,
        origin=RECIPE,
        package="flashinfer",
        variants=(
            Variant(
                "0.6.18-0.7.2.post1",
                (
                    Edit(
                        MLA_CUH,
                        Text("cudaError_t BatchMLAPagedAttention(Params params", "}  // namespace mla"),
                        "    constexpr uint32_t EFF_CTA_TILE_KV = "
                        "std::is_same_v<DTypeKV, __nv_fp8_e4m3> ? 32 : CTA_TILE_KV;\n",
                        "    // glm53: never larger than what the shared memory was dispatched for\n"
                        "    constexpr uint32_t EFF_CTA_TILE_KV =\n"
                        "        std::is_same_v<DTypeKV, __nv_fp8_e4m3> && CTA_TILE_KV > 32 ? 32 : CTA_TILE_KV;\n",
                    ),
                ),
            ),
        ),
        expected=needed(*FLASHINFER),
    ),
    Patch(
        name="sm121-fp8-gate",
        title="FlashInfer: fp8 KV in the MLA plan on capability 12",
        why="the plan refuses fp8 KV on every major but 9",
        upstream=ABSENT_FI,
        origin=RECIPE,
        package="flashinfer",
        variants=(
            Variant(
                "0.7.0",
                (_fp8_gate(FA_PLAN, "_validate_generated_fa_plan", " " * 8, "ValueError"),),
            ),
            Variant(
                "0.7.1-0.7.2.post1",
                (_fp8_gate(FA_PLAN, "_validate_generated_fa_plan", " " * 8, "_BackendPlanUnsupportedError"),),
            ),
            Variant(
                "0.6.18",
                (_fp8_gate(FA_PLAN_0_6, "BatchMLAPagedAttentionWrapper.plan", " " * 12, "ValueError"),),
            ),
        ),
        expected=needed(*FLASHINFER),
    ),
)
