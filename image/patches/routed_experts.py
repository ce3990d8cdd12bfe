"""Loading 288 experts scanned the whole expert table for every tensor."""

from __future__ import annotations

from image.patches.expect import fixed, needed
from image.patching import Addition, Edit, Patch, Variant, Witness

FILE = "vllm/model_executor/layers/fused_moe/routed_experts.py"

PATCH = Patch(
    name="routed-experts-index",
    title="look an expert's entries up instead of scanning all of them",
    why="the load scans tensors x experts entries; no numerical effect",
    upstream="vllm#58720, in 0.31.0",
    origin="vLLM (Apache-2.0); the text is ours",
    variants=(
        Variant(
            "0.30.0",
            (
                Edit(
                    FILE,
                    "RoutedExperts.load_weights",
                    "        expert_mapping = self.get_expert_mapping(include_fused=True)\n",
                    "        from vllm.glm53_expert_index import ExpertIndex\n"
                    "\n"
                    "        # glm53: entries by expert number; names that it cannot place scan the whole table\n"
                    "        expert_index = ExpertIndex(self.get_expert_mapping(include_fused=True))\n",
                ),
                Edit(
                    FILE,
                    "RoutedExperts.load_weights",
                    "            for param_name, weight_name, expert_id, shard_id in expert_mapping:\n",
                    "            candidates = expert_index.candidates(qual_name, is_fused)\n"
                    "            for param_name, weight_name, expert_id, shard_id in candidates:\n",
                ),
            ),
            (Addition("vllm/glm53_expert_index.py", "payload/glm53_expert_index.py"),),
        ),
    ),
    fixed=(Witness(FILE, "_index_expert_mapping"),),
    expected={**needed("0.30.0"), **fixed("0.31.0", "0.32.0", "0.33.0")},
)
