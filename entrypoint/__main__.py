"""`python3 -m entrypoint`: the boot of one box. The stages below are the product, in order."""

from __future__ import annotations

import asyncio
import os
import sys

from core.stage import Stage
from entrypoint.boot import Boot
from entrypoint.run import run
from entrypoint.stages import meet, serve, settle, start

STAGES: tuple[Stage[Boot], ...] = (
    Stage("page", "Page up", 5, start.page),
    Stage("knobs", "Read the knobs", 5, start.knobs),
    Stage("facts", "Look at this box", 15, start.facts),
    # From here on once for every generation.
    Stage("join", "Find the other boxes", None, meet.join),
    Stage("elect", "Elect the head", 5, meet.elect_head),
    Stage("preflight", "Preflight", 30, settle.preflight),
    Stage("size", "Size", 5, settle.size),
    Stage("agree", "Agree on a generation", 60, settle.agree),
    Stage("fabric", "Fabric check", 180, settle.fabric_check),
    Stage("launch", "Launch vLLM", 60, serve.launch),
    Stage("prove", "Prove it", 3600, serve.prove),
    Stage("watch", "Watch", None, serve.watch),
)


def main() -> int:
    """Exit status: 0 after TERM, 2 after a refusal with ON_REFUSAL=exit or without a page."""
    return asyncio.run(run(STAGES, "join", dict(os.environ)))


if __name__ == "__main__":
    sys.exit(main())
