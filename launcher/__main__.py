"""Find the verb and run it; a refusal becomes one line and exit status 2, never a traceback."""

from __future__ import annotations

import errno
import os
import signal
import sys

from core.refusal import Refusal, Refusals
from launcher.ending import Told, cleanly_ended
from launcher.verbs.table import find, help_text

# What a disk or a permission does to any verb, and what to do about it.
CURES = {
    errno.ENOSPC: "df -h shows which disk is full: free some of it, or put the cache elsewhere (GLM53_CACHE=...).",
    errno.EDQUOT: "Free some of your quota, or put the cache elsewhere (GLM53_CACHE=...).",
    errno.EROFS: "Run from a clone on a disk that can be written; GLM53_CACHE=... moves the cache.",
    errno.EACCES: "ls -ld it: it belongs to another user. GLM53_CACHE=... moves the cache.",
    errno.EPERM: "ls -ld it: it belongs to another user. GLM53_CACHE=... moves the cache.",
}


def main(arguments: list[str]) -> int:
    """Run one command line; returns the exit status."""
    try:
        if not arguments or arguments[0] in ("-h", "--help", "help"):
            print(help_text())
            return 0
        verb, rest = find(arguments)
        with cleanly_ended():
            return verb(rest)
    except (Refusal, Refusals) as error:
        for refusal in error.refusals:
            print(f"glm53: {refusal}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as told:
        number = told.number if isinstance(told, Told) else int(signal.SIGINT)
        print("glm53: interrupted", file=sys.stderr)
        return 128 + number
    except BrokenPipeError:  # whoever read our output has enough of it (`... | head`)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    except OSError as error:
        if error.errno not in CURES:
            raise
        place = str(error.filename or "disk")
        full = Refusal(place, error.strerror or "no access", "a place to write", CURES[error.errno])
        print(f"glm53: {full}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
