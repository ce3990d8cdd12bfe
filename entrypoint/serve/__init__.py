"""From a plan to vLLM's argv and environment; pure builders, one per profile.
Nothing here starts a process.
"""

from entrypoint.serve.arguments import planned_speculation
from entrypoint.serve.command import box_nccl, box_paths, engine_command, shown
from entrypoint.serve.key import api_key, key_of
from entrypoint.serve.speculation import Speculation, speculation

__all__ = [
    "Speculation",
    "api_key",
    "box_nccl",
    "box_paths",
    "engine_command",
    "key_of",
    "planned_speculation",
    "shown",
    "speculation",
]
