"""The verbs of ./glm53, one line each. What is not here is passed on to docker compose."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

Run = Callable[[list[str]], int]


@dataclass(frozen=True)
class Verb:
    """`name` as typed, `module` with a `run(arguments) -> int`, `help` in one line."""

    name: str
    module: str
    help: str


VERBS = (
    Verb(
        "knobs",
        "launcher.verbs.knobs",
        "Write KNOBS.md, .env.example and the compose environment from the knobs; check compares them",
    ),
    Verb(
        "lock",
        "launcher.verbs.lock",
        "Regenerate locks/ from pyproject.toml; --check verifies them for aarch64",
    ),
    Verb(
        "test",
        "launcher.verbs.test",
        "Run the test suites: --fast under 3 minutes, --full everything, or SUITE...",
    ),
)

# Anything else goes to docker compose with the kit's files in front.
COMPOSE = "launcher.verbs.compose"


def find(arguments: list[str]) -> tuple[Run, list[str]]:
    """The function for a command line and the arguments that remain for it."""
    for verb in VERBS:
        if verb.name == arguments[0]:
            run: Run = import_module(verb.module).run
            return run, arguments[1:]
    passed: Run = import_module(COMPOSE).run
    return passed, arguments


def help_text() -> str:
    """One line a verb."""
    width = max(len(verb.name) for verb in VERBS) + 2
    lines = [
        "usage: ./glm53 VERB ...   (anything else goes to docker compose: up -d, down, ps, logs -f, ...)",
        "",
    ]
    lines += [f"  {verb.name:<{width}}{verb.help}" for verb in VERBS]
    return "\n".join(lines)
