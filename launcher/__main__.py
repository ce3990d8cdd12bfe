"""Find the verb and run it; a refusal becomes one line and exit status 2, never a traceback."""

from __future__ import annotations

import sys

from core.refusal import Refusal, Refusals
from launcher.verbs.table import find, help_text


def main(arguments: list[str]) -> int:
    """Run one command line; returns the exit status."""
    try:
        if not arguments or arguments[0] in ("-h", "--help", "help"):
            print(help_text())
            return 0
        verb, rest = find(arguments)
        return verb(rest)
    except Refusals as refusals:
        for refusal in refusals.refusals:
            print(f"glm53: {refusal}", file=sys.stderr)
        return 2
    except Refusal as refusal:
        print(f"glm53: {refusal}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("glm53: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
