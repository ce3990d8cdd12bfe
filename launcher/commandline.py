"""Split `./glm53 [ours] [compose options] VERB ...`: what is the launcher's, what goes to docker compose. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from core.refusal import Refusal

# docker compose's own options before the verb that take a value.
WITH_VALUE = ("-p", "--project-name", "--profile", "--ansi", "--parallel", "--progress", "--project-directory")
# Verbs whose arguments are another program's.
FOREIGN = ("exec", "run")
# Verbs that start a container: everything is checked first.
STARTING = ("up", "create", "run", "start", "restart")


@dataclass(frozen=True)
class CommandLine:
    """`files` are the user's own -f, put after the overlays; `options` go before `verb`, `rest` after it."""

    verb: str
    rest: tuple[str, ...]
    options: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    dotenv: str | None = None
    stock: bool = False
    without: tuple[str, ...] = ()
    wanted: tuple[str, ...] = ()

    @property
    def starts(self) -> bool:
        """True when a container would start, so that everything is checked first."""
        return self.verb in STARTING and not {"-h", "--help"} & set(self.rest)

    @property
    def detached(self) -> bool:
        """True for `up -d`: the prompt comes back while the model loads."""
        return self.verb == "up" and bool({"-d", "--detach", "--wait"} & set(self.rest))


def split(arguments: list[str]) -> CommandLine:
    """Raises Refusal when an option lacks its value or there is no verb."""
    taken: dict[str, list[str]] = {"-f": [], "--env-file": [], "--without": [], "--with": []}
    names = {"-f": "-f", "--file": "-f", "--env-file": "--env-file", "--without": "--without", "--with": "--with"}
    options: list[str] = []
    rest: list[str] = []
    verb = ""
    stock = False
    left = list(arguments)
    while left:
        word = left.pop(0)
        name, equals, value = word.partition("=")
        # `logs -f` is not ours; an overlay's option is, wherever it stands.
        ours = name in (("--without", "--with") if verb else names)
        if verb in FOREIGN:
            rest.append(word)
        elif word == "--stock":
            stock = True
        elif ours:
            taken[names[name]].append(value if equals else _next(left, word))
        elif verb:
            rest.append(word)
        elif word.startswith("-"):
            options.append(word)
            if word in WITH_VALUE:
                options.append(_next(left, word))
        else:
            verb = word
    if not verb:
        raise Refusal("command", " ".join(arguments), "a verb, e.g. up -d", "./glm53 --help")
    return CommandLine(
        verb,
        tuple(rest),
        tuple(options),
        tuple(taken["-f"]),
        taken["--env-file"][-1] if taken["--env-file"] else None,
        stock,
        names_of(taken["--without"]),
        names_of(taken["--with"]),
    )


def names_of(texts: list[str]) -> tuple[str, ...]:
    """The names in the values of a repeatable option: `--without a,b --without c`."""
    return tuple(name.strip() for text in texts for name in text.split(","))


def _next(left: list[str], option: str) -> str:
    if not left:
        raise Refusal(option, "nothing after it", "a value", f"./glm53 {option} VALUE ...")
    return left.pop(0)
