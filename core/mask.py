"""One function that takes secrets out of text before anybody sees it: logs, argv, environment, tool answers.

Two ways, both always: values that are known to be secret, and places where a secret usually stands. Every expression
is anchored at a word and bounded, so that no line of a log, whoever made it, takes long.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from urllib.parse import quote

MASK = "********"
# Shorter values would mask every second word, and protect nothing.
SHORTEST = 4
LONGEST_FILE = 4096
# A variable, option or key that ends so holds a secret.
ENDINGS = (
    "SECRET",
    "TOKEN",
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "API_KEY",
    "APIKEY",
    "ACCESS_KEY",
    "PRIVATE_KEY",
    "CREDENTIAL",
    "CREDENTIALS",
)
_WORD = "(?i)(?P<name>" + "|".join(ending.replace("_", "[-_]?") for ending in ENDINGS) + ")"
# NAME=value, "name": "value", name: value
_ASSIGNED = re.compile(
    _WORD
    + r"(?P<between>[\"']?\s{0,8}[=:]\s{0,8})(?P<value>\"[^\"\n]{1,4096}\"?|'[^'\n]{1,4096}'?|[^\s,;&\"'{}\[\]()]+)"
)
# --some-key value
_OPTION = re.compile(_WORD + r"(?P<between>[ \t\0]{1,8})(?P<value>[^\s\0]+)")
_WHOLE = (
    (re.compile(r"(?i)(\bauthorization[\"']?\s{0,8}[:=]\s{0,8}[\"']?(?:bearer|basic)\s{1,8})[^\s\"']+"), rf"\1{MASK}"),
    (re.compile(r"(?i)(\bbearer\s{1,8})[A-Za-z0-9._~+/=-]{16,}"), rf"\1{MASK}"),
    (re.compile(r"(?<=://)[^\s/@:\"']{0,200}:[^\s/@\"']{1,400}@"), f"{MASK}@"),
    (re.compile(r"\b(?:hf_|sk-|ghp_|gho_|github_pat_|glpat-|xox[abp]-)[A-Za-z0-9_-]{8,}"), MASK),
)
_PLAIN = frozenset({"", "none", "null", "true", "false", "not", "is", "and", "or", "seen", "expected", MASK})
_LONGEST_OPTION = 60


def mask(text: str, secrets: Iterable[str] = ()) -> str:
    """`text` without the `secrets` (also JSON-escaped, percent-encoded or as repr) and without what looks like one."""
    text = hide(text, secrets)
    text = _ASSIGNED.sub(_hide, text)
    text = _OPTION.sub(_hide_option, text)
    for pattern, instead in _WHOLE:
        text = pattern.sub(instead, text)
    return text


def hide(text: str, secrets: Iterable[str]) -> str:
    """`text` without these values; places where others might stand are left alone."""
    for form in _forms(secrets):
        text = text.replace(form, MASK)
    return text


def mask_argv(argv: Iterable[str], secrets: Iterable[str] = ()) -> list[str]:
    """The arguments, each masked; what follows a `--...key` or `--...token` is masked whole."""
    known = tuple(secrets)
    shown: list[str] = []
    hide = False
    for argument in argv:
        shown.append(MASK if hide and not argument.startswith("--") else mask(argument, known))
        hide = argument.startswith("--") and "=" not in argument and is_secret_name(argument[2:])
    return shown


def is_secret_name(name: str) -> bool:
    """True for a variable, option or key that holds a secret, by its name: GROUP_SECRET, api-key; not MAX_TOKENS."""
    return name.upper().replace("-", "_").endswith(ENDINGS)


def known_secrets(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Values of an environment that are secret by their name, and the contents of the files that *_FILE names."""
    found = {value for name, value in environ.items() if is_secret_name(name)}
    for name, value in environ.items():
        if name.upper().endswith("_FILE") and value and is_secret_name(name[:-5]):
            found.add(read_secret(value) or "")
    return tuple(sorted(value for value in found if len(value) >= SHORTEST))


def read_secret(path: str) -> str | None:
    """The stripped text of a secret's file, at most LONGEST_FILE bytes; None when it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        return os.read(descriptor, LONGEST_FILE).decode(errors="replace").strip()
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _forms(secrets: Iterable[str]) -> list[str]:
    """Every spelling of every secret, longest first: a part must not hide the whole from being found."""
    forms: set[str] = set()
    for secret in secrets:
        if len(secret) >= SHORTEST:
            forms |= {secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
            forms |= {repr(secret)[1:-1], quote(secret, safe="", errors="replace"), quote(secret, errors="replace")}
    return sorted(forms, key=len, reverse=True)


def _hide(match: re.Match[str]) -> str:
    value = match["value"]
    bare = value.strip("\"'")
    if bare.lower() in _PLAIN or (bare.isdecimal() and len(bare) < 8):  # what counts tokens is no secret
        return match[0]
    quoted = value[0] if value[0] in "\"'" else ""
    closed = quoted if quoted and len(value) > 1 and value.endswith(quoted) else ""
    return f"{match['name']}{match['between']}{quoted}{MASK}{closed}"


def _hide_option(match: re.Match[str]) -> str:
    """`--api-key value`, but neither "the token is" nor `--api-key --port`."""
    before = match.string[max(0, match.start() - _LONGEST_OPTION) : match.start()]
    option = re.split(r"[\s\0]", before)[-1].startswith("--")
    return f"{match['name']}{match['between']}{MASK}" if option and not match["value"].startswith("--") else match[0]
