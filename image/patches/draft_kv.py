"""DFlash2 adds five sliding-window layers; before 0.32.0 the model's own KV grouping cannot hold them."""

from __future__ import annotations

from image.patches.expect import RECIPE, fixed, needed
from image.patching import Addition, Edit, Patch, Variant, Witness

FILE = "vllm/v1/core/kv_cache_utils.py"

PATCH = Patch(
    name="draft-kv-groups",
    title="KV cache groups for the drafter's sliding-window layers",
    why="the grouper gives up on any spec that is not MLA, and the generic one raises after the whole weight load",
    upstream="0.32.0 packs mixed page sizes in every block and needs none of it",
    origin=RECIPE,
    variants=(
        Variant(
            "0.30.0-0.31.0",
            (
                Edit(
                    FILE,
                    "module",
                    "from vllm.logger import init_logger\n",
                    "from vllm import glm53_draft_kv\nfrom vllm.logger import init_logger\n",
                ),
                Edit(
                    FILE,
                    "_get_kv_cache_groups_glm5_next",
                    "    mamba_specs = {\n        name: spec\n        for name, spec in kv_cache_spec.items()\n",
                    "    # glm53: the drafter's layers become groups of their own, after the model's\n"
                    "    kv_cache_spec, draft_groups = glm53_draft_kv.split(kv_cache_spec)\n"
                    "    mamba_specs = {\n        name: spec\n        for name, spec in kv_cache_spec.items()\n",
                ),
                Edit(
                    FILE,
                    "_get_kv_cache_groups_glm5_next",
                    "        + create_kv_cache_group_specs(padded_specs, mamba_grouped_names)\n    )\n",
                    "        + create_kv_cache_group_specs(padded_specs, mamba_grouped_names)\n"
                    "        + draft_groups\n    )\n",
                ),
                Edit(
                    FILE,
                    "_glm5_next_tensor_layout",
                    "    uniform_groups = [\n        group\n        for group in kv_cache_groups\n",
                    "    kv_cache_groups = glm53_draft_kv.without_draft(kv_cache_groups)\n"
                    "    uniform_groups = [\n        group\n        for group in kv_cache_groups\n",
                ),
                Edit(
                    FILE,
                    "_get_kv_cache_bytes_per_block",
                    "        return len(mla_names) * mla_page + len(idx_names) * idx_page\n",
                    "        return (\n"
                    "            len(mla_names) * mla_page\n"
                    "            + len(idx_names) * idx_page\n"
                    "            + glm53_draft_kv.bytes_per_block(kv_cache_groups)\n"
                    "        )\n",
                ),
                Edit(
                    FILE,
                    "get_kv_cache_config_from_groups",
                    "        bytes_per_block = len(mla_names) * mla_page + len(idx_names) * idx_page\n",
                    "        bytes_per_block = (\n"
                    "            len(mla_names) * mla_page\n"
                    "            + len(idx_names) * idx_page\n"
                    "            + glm53_draft_kv.bytes_per_block(kv_cache_groups)\n"
                    "        )\n",
                ),
                Edit(
                    FILE,
                    "get_kv_cache_config_from_groups",
                    "                add_tensor(tail_name, tail_specs[tail_name], offset)\n",
                    "                add_tensor(tail_name, tail_specs[tail_name], offset)\n"
                    "\n"
                    "        # glm53: one region of its own per drafter layer, behind the indexer's\n"
                    "        offset = idx_base + len(idx_names) * idx_page * num_blocks\n"
                    "        for draft_name, draft_spec in glm53_draft_kv.layers(kv_cache_groups):\n"
                    "            add_tensor(draft_name, draft_spec, offset)\n"
                    "            offset += draft_spec.page_size_bytes * num_blocks\n",
                ),
                Edit(
                    FILE,
                    "_max_memory_usage_bytes_from_groups",
                    "            total_blocks += 1\n"
                    "        return total_blocks * (len(mla_names) * mla_page + len(idx_names) * idx_page)\n",
                    "            total_blocks += 1\n"
                    "        total_blocks += glm53_draft_kv.blocks(vllm_config, kv_cache_groups)\n"
                    "        return total_blocks * (\n"
                    "            len(mla_names) * mla_page\n"
                    "            + len(idx_names) * idx_page\n"
                    "            + glm53_draft_kv.bytes_per_block(kv_cache_groups)\n"
                    "        )\n",
                ),
            ),
            (Addition("vllm/glm53_draft_kv.py", "payload/glm53_draft_kv.py"),),
        ),
    ),
    # The tail's backend asks for the packed layout: from there on mixed page sizes, the drafter's too, share a block.
    fixed=(
        Witness(
            "vllm/v1/attention/backends/mla/indexer.py",
            "KpoolTailBackend.supported_kv_cache_layouts",
            "        return (KVCacheLayout.BLHNC,)\n",
        ),
    ),
    expected={**needed("0.30.0", "0.31.0"), **fixed("0.32.0", "0.33.0")},
)
