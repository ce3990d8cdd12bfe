"""How long preflight looks at a replayed box: `python3 -m bench.preflight`. No torch may be loaded by it."""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from pathlib import Path

from preflight.checks import Scene, Wanted, preflight
from preflight.facts.survey import survey
from tests.fixtures.boxes_tree import group, write

LIMIT_S = 1.5


def main() -> int:
    """Exit status: 0 when the slowest of five looks stays under LIMIT_S."""
    with tempfile.TemporaryDirectory() as folder:
        root = write(group("ring", 4, random.Random(1), plain=True)[0], Path(folder))
        times = []
        for _ in range(5):
            began = time.perf_counter()
            rows = preflight(Scene(survey(root), Wanted(loop=True)))
            times.append(time.perf_counter() - began)
    torch = "torch" in sys.modules
    what = "preflight of a replayed ring box, seconds"
    print(json.dumps({"what": what, "seconds": [round(one, 4) for one in times], "rows": len(rows), "torch": torch}))
    return 0 if max(times) < LIMIT_S and not torch else 1


if __name__ == "__main__":
    sys.exit(main())
