#!/usr/bin/env bash
# smoketest/run.sh BASE [served-name] [--json]: eight questions with checkable answers (smoketest/README.md).
# Exit status: the number of failed cases; 100 for usage, an unreachable server or a missing Python.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)

python=""
for candidate in python3 python3.14 python3.13 python3.12 python3.11; do
    if command -v "$candidate" >/dev/null && "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
        python=$candidate
        break
    fi
done
if [ -z "$python" ]; then
    echo "smoketest: needs Python 3.11 or newer: sudo apt-get install python3.12 python3.12-venv" >&2
    exit 100
fi

if [ $# -eq 0 ]; then # said before anything is installed
    echo "usage: smoketest/run.sh BASE [served-name] [--json]   e.g. smoketest/run.sh http://127.0.0.1:8002" >&2
    exit 100
fi

export PYTHONPATH=$here PYTHONDONTWRITEBYTECODE=1
# In the container, and wherever httpx is installed, there is nothing to prepare; else the kit's private
# environment, the same that other verbs use, is made once.
if ! "$python" -c 'import httpx' 2>/dev/null; then
    python=$("$python" -m smoketest.environment) || exit 100
fi
exec "$python" -m smoketest "$@"
