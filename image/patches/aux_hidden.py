"""DFlash2 drafts from hidden states of five target layers; before 0.32.0 the model does not hand them out."""

from __future__ import annotations

from image.patches.expect import RECIPE, fixed, needed
from image.patching import Addition, Edit, Patch, Variant, Witness


def _variant(label: str, file: str) -> Variant:
    return Variant(
        label,
        (
            Edit(
                file,
                "module",
                "from vllm.logger import init_logger\n",
                "from vllm.glm53_aux_hidden import completed_stream\nfrom vllm.logger import init_logger\n",
            ),
            Edit(
                file,
                "module",
                "from vllm.model_executor.models.interfaces import (\n",
                "from vllm.model_executor.models.interfaces import (\n    EagleModelMixin,\n    SupportsEagle3,\n",
            ),
            Edit(
                file,
                "Glm5NextModel",
                "class Glm5NextModel(nn.Module):\n",
                "class Glm5NextModel(nn.Module, EagleModelMixin):\n",
            ),
            Edit(
                file,
                "Glm5NextModel.forward",
                "        for layer in self._active_layers:\n",
                "        # glm53: id L stands for the completed stream that enters layer L\n"
                "        aux_hidden_states: list[torch.Tensor] = []\n"
                "        for index, layer in enumerate(self._active_layers, self.start_layer):\n"
                "            if index in self.aux_hidden_state_layers:\n"
                "                aux = completed_stream(layer, hidden_states, residual, post, comb)\n"
                "                if self.is_sequence_parallel:\n"
                "                    aux = sp_all_gather(aux)[:full_num_tokens]\n"
                "                aux_hidden_states.append(aux)\n",
            ),
            Edit(
                file,
                "Glm5NextModel.forward",
                "            hidden_states = sp_all_gather(hidden_states)[:full_num_tokens]\n"
                "\n"
                "        hidden_states = self.norm(hidden_states)\n"
                "        return hidden_states\n",
                "            hidden_states = sp_all_gather(hidden_states)[:full_num_tokens]\n"
                "\n"
                "        # glm53: the last layer has contracted its streams, so its output is the tensor\n"
                "        if self.end_layer in self.aux_hidden_state_layers:\n"
                "            aux_hidden_states.append(hidden_states)\n"
                "        hidden_states = self.norm(hidden_states)\n"
                "        if aux_hidden_states:\n"
                "            return hidden_states, aux_hidden_states\n"
                "        return hidden_states\n",
            ),
            Edit(
                file,
                "Glm5NextForCausalLM",
                "    nn.Module, HasInnerState, SupportsPP, MixtureOfExperts, IsHybrid\n",
                "    nn.Module, HasInnerState, SupportsPP, MixtureOfExperts, IsHybrid, SupportsEagle3\n",
            ),
            Edit(
                file,
                "Glm5NextForConditionalGeneration",
                "    Glm4vForConditionalGeneration, HasInnerState, IsHybrid, MixtureOfExperts\n",
                "    Glm4vForConditionalGeneration, HasInnerState, IsHybrid, MixtureOfExperts, SupportsEagle3\n",
            ),
        ),
        (Addition("vllm/glm53_aux_hidden.py", "payload/glm53_aux_hidden.py"),),
    )


PATCH = Patch(
    name="aux-hidden-states",
    title="hand out auxiliary hidden states to the drafter",
    why="`--speculative-config` with dflash refuses: the model lacks the EAGLE3 interface",
    upstream="in 0.32.0",
    origin=RECIPE,
    variants=(
        _variant("0.31.0", "vllm/models/glm5next/common/model.py"),
        _variant("0.30.0", "vllm/models/glm5next/nvidia/model.py"),
    ),
    fixed=(
        Witness(
            "vllm/models/glm5next/common/model.py",
            "Glm5NextModel",
            "class Glm5NextModel(nn.Module, EagleModelMixin):\n",
        ),
    ),
    expected={**needed("0.30.0", "0.31.0"), **fixed("0.32.0", "0.33.0")},
)
