"""From the boxes' facts, the model's facts and the knobs to KV pin, sequences, context and budget.
Pure and standard library only, so that `./glm53 plan` runs on a bare host.
"""

from entrypoint.sizing.sizing import BoxMemory, Sizing, size

__all__ = ["BoxMemory", "Sizing", "size"]
