"""Answers in other scripts, looked at character by character: corrupted tokens are plain there and invisible in English
(reported with some NVFP4 packs)."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

from gate.check import Check, Outcome, judged
from gate.session import OFF, Scope

# language -> prefixes of the Unicode names of its letters
LANGUAGES: dict[str, tuple[str, ...]] = {
    "Korean": ("HANGUL",),
    "Japanese": ("HIRAGANA", "KATAKANA", "CJK"),
    "Chinese": ("CJK",),
    "Arabic": ("ARABIC",),
    "Hindi": ("DEVANAGARI",),
    "Russian": ("CYRILLIC",),
    "Greek": ("GREEK",),
    "Thai": ("THAI",),
}
OWN_SHARE = 0.7  # of all letters
FOREIGN_SHARE = 0.02  # letters that are neither of the script nor Latin


@dataclass(frozen=True)
class Scan:
    """What is in a text: `bad` characters that no healthy answer has, and shares of letters."""

    bad: tuple[str, ...]
    letters: int
    own: float
    foreign: float


def scan(text: str, prefixes: tuple[str, ...]) -> Scan:
    """Look at every character. bad: U+FFFD, other noncharacters, private use, surrogates, control characters."""
    bad, own, foreign, letters = [], 0, 0, 0
    for letter in text:
        kind = unicodedata.category(letter)
        if letter == "\ufffd" or kind in ("Co", "Cs", "Cn") or (kind == "Cc" and letter not in "\n\r\t"):
            bad.append(f"U+{ord(letter):04X}")
        if not kind.startswith("L"):
            continue
        letters += 1
        name = unicodedata.name(letter, "")
        if name.startswith(prefixes):
            own += 1
        elif not name.startswith(("LATIN", "FULLWIDTH LATIN", "MODIFIER", "KATAKANA-HIRAGANA")):
            foreign += 1
    return Scan(tuple(bad), letters, own / letters if letters else 0.0, foreign / letters if letters else 0.0)


def suspect(text: str) -> bool:
    """For English answers: a bad character, any Hangul (as corruption showed where reported), or over 2 % of letters
    that are neither Latin nor Greek (which formulas hold)."""
    found = scan(text, ("LATIN", "GREEK"))
    hangul = any("\uac00" <= letter <= "\ud7a3" for letter in text)
    return bool(found.bad) or hangul or found.foreign > FOREIGN_SHARE


def wrong(text: str, prefixes: tuple[str, ...]) -> str | None:
    """What is wrong with an answer, or None."""
    found = scan(text, prefixes)
    if found.bad:
        return f"holds {', '.join(sorted(set(found.bad))[:4])}"
    if found.letters < 20:
        return f"only {found.letters} letters: {text[:40]!r}"
    if found.own < OWN_SHARE:
        return f"only {found.own:.0%} of its letters are of its script: {text[:40]!r}"
    if found.foreign > FOREIGN_SHARE:
        return f"{found.foreign:.1%} of its letters are of a third script"
    return None


async def run(scope: Scope) -> Outcome:
    """One answer a language and run, at temperature 0 first, then 1: tails corrupt first."""
    right, total, first = 0, 0, ""
    for number in range(scope["runs"]):
        for language, prefixes in LANGUAGES.items():
            prompt = (
                f"[{scope.tag(number, language)}] Write five sentences about a harbour at dawn in {language}, "
                "in its own script. Only the text, without a translation."
            )
            row = await scope.ask(
                f"{number}/{language}",
                prompt,
                max_tokens=scope.budget(scope["tokens"]),
                temperature=min(number, 1),
                seed=number,
                **OFF,
            )
            bad = wrong(row["text"], prefixes)
            total += 1
            right += bad is None
            first = first or (f"{language}: {bad}" if bad else "")
            scope.note(f"{right} of {total} clean")
    return judged(right, total, "answers clean", first)


CHECK = Check(
    name="scripts",
    room="right",
    title="Korean and other scripts",
    bar=(
        "no replacement, control or unassigned character, 70 % of the letters of the script asked for, "
        "under 2 % of a third one"
    ),
    why="A corrupted token reads as a typo in English and as a broken character elsewhere.",
    run=run,
    quick={"runs": 1, "tokens": 400},
    full={"runs": 3, "tokens": 800},
)
