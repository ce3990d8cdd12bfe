"""The boot of one box: the twelve stages, in the order of entrypoint/__main__.py.
Pure parts (election, topology, sizing, serve) decide; supervise, door and discovery act.
"""

import sys

# httpx imports its command line's packages (rich, click, pygments) where they are installed: 6 MiB of every box's
# memory for nothing. It does without them when this module cannot be imported.
sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]
