"""Print the interpreter that has the kit's packages; makes the private environment on first use, with progress."""

from __future__ import annotations

import sys

from core.refusal import Refusal
from launcher.environments import locked, python_of

if __name__ == "__main__":
    try:
        print(python_of(locked("kit")))
    except Refusal as refusal:
        print(f"smoketest: {refusal}", file=sys.stderr)
        sys.exit(100)
    except KeyboardInterrupt:
        print("smoketest: interrupted", file=sys.stderr)
        sys.exit(100)
