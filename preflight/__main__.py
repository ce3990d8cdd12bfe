"""`python3 -m preflight record OUT.tar`: an anonymised recording of this box, also where there is no launcher."""

from __future__ import annotations

import sys
from pathlib import Path

from preflight.facts.survey import survey
from preflight.recording import record


def main(arguments: list[str]) -> int:
    """Exit status: 0 written, 2 wrong arguments."""
    if len(arguments) != 2 or arguments[0] != "record":
        print("usage: python3 -m preflight record OUT.tar", file=sys.stderr)
        return 2
    count = record(survey(disks=("/", "/cache", "/models", "/logs")), Path(arguments[1]))
    print(f"{count} files in {arguments[1]}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
