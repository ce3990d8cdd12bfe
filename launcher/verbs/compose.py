"""What ./glm53 does not know goes to docker compose, with the kit's files in front."""

from __future__ import annotations

from core.refusal import Refusal


def run(arguments: list[str]) -> int:
    """Exit status of docker compose."""
    raise Refusal("verb", arguments[0], "a verb of ./glm53 --help", "./glm53 --help")
