"""Prompts by class. Index 0-7 are plain, 8-15 the same with a wish for thoroughness, from 16 on there are further ones
with a style, so that a wide batch does not repeat itself: identical greedy prompts share their experts and flatter
the result.
"""

from __future__ import annotations

SYSTEM = "The line in square brackets at the top of a message is a label. Ignore it."
THOROUGH = " Be thorough: cover edge cases and explain each part at length."

CODE = (
    "Write a Python class for a fixed-size ring buffer with iteration, slicing and tests.",
    "Write a Go function that merges two sorted linked lists, with a table-driven test.",
    "Implement a token-bucket rate limiter in Rust, safe for several threads, with an example.",
    "Write a C program that prints the ten commonest words of a file, without any library but libc.",
    "Write a TypeScript parser for arithmetic expressions with unary minus and parentheses.",
    "Write a SQL schema and ten queries for a lending library with reservations and fines.",
    "Implement an LRU cache with expiry in Java and explain its locking.",
    "Write a shell script that rotates backups daily, weekly and monthly, with a dry run.",
)
PROSE = (
    "Describe a day in the life of a ferry captain in the northern islands.",
    "Explain to a curious teenager why the sea is salt.",
    "Write a letter from a clockmaker to her apprentice about patience.",
    "Discuss what a town loses when its last bookshop closes.",
    "Tell how a village learned to live with a river that floods.",
    "Describe an old railway station at night, and who waits there.",
    "Explain how bread rises, as if speaking to someone who bakes for the first time.",
    "Write a reflective essay about walking the same path for thirty years.",
)
STRUCTURED = (
    "Produce a JSON array of 60 objects with the fields id, name, port, enabled for an invented service catalogue.",
    "Produce a CSV table of 80 invented weather readings with station, hour, wind, pressure, gust.",
    "Produce a YAML file with 40 invented hosts, each with address, roles, disks and tags.",
    "Produce a Markdown table of 70 invented library books with author, year, shelf and due date.",
    "Produce a JSON object that maps 60 invented airport codes to name, country, latitude, longitude.",
    "Produce an XML document with 50 invented invoices, each with number, customer, lines and total.",
    "Produce a list of 80 invented log lines in one fixed format with time, level, module, message.",
    "Produce a TOML file with 40 invented build targets with sources, flags and outputs.",
)
FURTHER = {
    "code": (
        "a bloom filter",
        "a trie with deletion",
        "an interval tree",
        "a priority queue",
        "a diff of two texts",
        "a base64 codec",
    ),
    "prose": (
        "a harbour in fog",
        "an orchard in spring",
        "a night train",
        "a lost umbrella",
        "a tide mill",
        "a chess club",
    ),
    "structured": ("tide tables", "bus departures", "seed catalogues", "sensor alarms", "menu cards", "race results"),
}
STYLES = (
    "Keep to short sentences.",
    "Give an example for each point.",
    "Start with a summary.",
    "Use headings.",
    "Assume a reader in a hurry.",
    "Compare two ways of doing it.",
    "End with open questions.",
    "Avoid jargon.",
)
_LEAD = {
    "code": "Write a well tested implementation of {}.",
    "prose": "Write a long text about {}.",
    "structured": "Produce 70 rows of invented {} as JSON.",
}
COUNT_TO = 200
COUNTING = f"Write the whole numbers from 1 to {COUNT_TO}, one per line, digits only, and nothing else."
_BASE = {"code": CODE, "prose": PROSE, "structured": STRUCTURED}
CLASSES = ("code", "prose", "structured")


def prompt(work: str, index: int) -> str:
    """The prompt of a class at an index; any index is valid, and the first 64 of a class differ."""
    if work == "counting":
        return COUNTING
    base = _BASE[work]
    if index < 8:
        return base[index]
    if index < 16:
        return base[index - 8] + THOROUGH
    topics = FURTHER[work]
    place = index - 16
    style = STYLES[(place // len(topics)) % len(STYLES)]
    return f"{_LEAD[work].format(topics[place % len(topics)])} {style}"
