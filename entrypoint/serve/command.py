"""The command of one box: what to execute, whole. Pure; nothing here starts a process."""

from __future__ import annotations

from collections.abc import Mapping

from core.mask import MASK
from core.plan import BoxPlan, Command, GroupPlan
from core.settings import Settings
from entrypoint.serve.arguments import arguments
from entrypoint.serve.environment import SECRETS, environment


def engine_command(group: GroupPlan, box: BoxPlan, base_env: Mapping[str, str]) -> Command:
    """vLLM on this box. `base_env` is the kit's environment with VLLM_API_KEY added when there is a key.

    Raises Refusal when the plan's speculation or EXTRA_ARGS cannot be.
    """
    python = box.paths.get("python", "python3")
    argv = (python, "-m", "vllm.entrypoints.cli.main", "serve", *arguments(group, box))
    return Command(argv, environment(group, box, base_env))


def shown(command: Command) -> dict[str, str]:
    """The command's environment as people may see it."""
    return {name: MASK if name in SECRETS else value for name, value in command.environment.items()}


def box_paths(settings: Settings) -> dict[str, str]:
    """BoxPlan.paths of this box's knobs."""
    return {
        "python": settings["ENGINE_PYTHON"],
        "model": settings["MODEL_DIR"],
        "drafter": settings["DFLASH_MODEL"],
        "logs": settings["LOG_DIR"],
        "cache": settings["CACHE_ROOT"],
    }


def box_nccl(settings: Settings) -> dict[str, str]:
    """BoxPlan.nccl of this box's knobs: what somebody set by hand; the fabric's own choice comes beneath it."""
    table = {name: settings.text(name) for name in ("NCCL_IB_HCA", "NCCL_IB_GID_INDEX")}
    table |= {name: settings.text(name) for name in ("TORCH_MEM_STATS_DIR", "TORCH_MEM_TRACE_DIR")}
    return {name: text for name, text in table.items() if text}
