"""`python3 -m entrypoint.healthcheck`: Docker's health check asks the page's /healthz; standard library only.

Exit 0 when the box says it is healthy, else 1 with its sentence, which `docker inspect` shows.
"""

from __future__ import annotations

import os
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping

ANSWER_S = 8.0
ANYWHERE = ("", "0.0.0.0", "::")


def url(environ: Mapping[str, str]) -> str:
    """Where the page of this box listens, from STATUS_BIND and STATUS_PORT."""
    bind = environ.get("STATUS_BIND", "")
    host = "127.0.0.1" if bind in ANYWHERE else bind
    return f"http://{host}:{environ.get('STATUS_PORT') or 8082}/healthz"


def main(environ: Mapping[str, str]) -> int:
    """Ask once and print what was answered."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url(environ), timeout=ANSWER_S) as reply:
            print(reply.read(2000).decode(errors="replace"))
    except urllib.error.HTTPError as error:
        print(error.read(2000).decode(errors="replace"))
        return 1
    except OSError as error:
        print(f"no page at {url(environ)}: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(os.environ))
