#!/usr/bin/env bash
# Build the image: image/build.sh [--base NAME] [--tag TAG] [--dry-run] [--push] [--platform P] [--flashkda DIR]
set -euo pipefail
cd "$(dirname "$0")/.."
exec python3 -m image.build "$@"
