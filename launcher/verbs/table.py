"""The verbs of ./glm53, one line each. What is not here is passed on to docker compose."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from core.lint import one_edit_apart
from core.refusal import Refusal

Run = Callable[[list[str]], int]


@dataclass(frozen=True)
class Verb:
    """`name` as typed, `module` with a `run(arguments) -> int`, `help` in one line."""

    name: str
    module: str
    help: str


VERBS = (
    Verb(
        "bench",
        "launcher.verbs.bench",
        "Check and measure the kernels on this machine's GPU: ./glm53 bench kernels",
    ),
    Verb(
        "watch",
        "launcher.verbs.watch",
        "Show all boxes' stages, live; --until serving ends with the URL, model name and a curl line",
    ),
    Verb(
        "logs",
        "launcher.verbs.logs",
        "docker compose logs; --stats shows one readable line per statistics update of the engine",
    ),
    Verb(
        "doctor",
        "launcher.verbs.doctor",
        "What is wrong with this box and what to fix first; --json, --record TAR, --replay TAR",
    ),
    Verb(
        "knobs",
        "launcher.verbs.knobs",
        "Write KNOBS.md, .env.example and the compose environment from the knobs; check compares them",
    ),
    Verb(
        "plan",
        "launcher.verbs.plan",
        "What would be launched and whether it fits: budget, knobs, overlays, argv; --json, --diff A B",
    ),
    Verb(
        "pad",
        "launcher.verbs.pad",
        "SRC DST [--tp 3|6]: zero-pad a checkpoint whose heads do not divide (exact; hard links)",
    ),
    Verb(
        "lab",
        "launcher.verbs.lab",
        "A cluster of real vLLM on this machine: up, status, logs, exec, kill, pause, resume, down",
    ),
    Verb(
        "patches",
        "launcher.verbs.patches",
        "check, apply, remove or list the patches on an unpacked vLLM; check also takes an image",
    ),
    Verb(
        "image",
        "launcher.verbs.image",
        "inspect shows what an image holds; send HOST... copies it to the other boxes and compares ids",
    ),
    Verb(
        "gate",
        "launcher.verbs.gate",
        "Is the served model right, fast and fair: gate quick, full, NAME..., speed run, speed compare A B",
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
# What docker compose 2 knows, to tell a slip of the finger from one of its verbs.
COMPOSE_VERBS = (
    "alpha", "attach", "bridge", "build", "commit", "config", "convert", "cp", "create", "down", "events", "exec",
    "export", "images", "kill", "ls", "pause", "port", "ps", "publish", "pull", "push", "restart", "rm", "run", "scale",
    "start", "stats", "stop", "top", "unpause", "up", "version", "volumes", "wait",
)  # fmt: skip


def find(arguments: list[str]) -> tuple[Run, list[str]]:
    """The function for a command line and the arguments that remain for it."""
    for verb in VERBS:
        if verb.name == arguments[0]:
            run: Run = import_module(verb.module).run
            return run, arguments[1:]
    _slip(arguments[0])
    passed: Run = import_module(COMPOSE).run
    return passed, arguments


def _slip(word: str) -> None:
    """Refusal for a word that is nobody's verb but one letter from one: docker would answer with a page of help."""
    known = (*(verb.name for verb in VERBS), *COMPOSE_VERBS)
    near = [verb for verb in known if one_edit_apart(word, verb)]
    if near and word not in known and not word.startswith("-"):  # -p is an option, one letter from up
        raise Refusal("command", word, f"a verb, perhaps {' or '.join(near)}", "./glm53 --help lists them.")


# Shown in --help beside the verbs: what people type, and docker compose does.
PASSED_ON = (
    ("up -d", "Check this box, then start the model in the background"),
    ("down", "Stop it; the caches and logs stay (down -v removes them)"),
    ("ps, exec, ...", "Any other docker compose command, with the kit's files in front"),
)
OPTIONS = (
    ("--stock", "Leave every overlay out and run vLLM's stock kernels, at about half the speed (reported)"),
    ("--without NAME", "Leave one overlay out; --with NAME puts an optional one on"),
    ("-f FILE", "Your own compose file, laid over everything else"),
)


def help_text() -> str:
    """One line a verb."""
    own = [(verb.name, verb.help) for verb in VERBS]
    width = max(len(name) for name, _ in (*own, *PASSED_ON, *OPTIONS)) + 2
    lines = ["usage: ./glm53 [OPTION...] VERB ...", ""]
    for rows in (PASSED_ON, own, OPTIONS):
        lines += [f"  {name:<{width}}{text}" for name, text in rows] + [""]
    return "\n".join(lines[:-1])
