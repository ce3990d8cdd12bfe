"""`./glm53 image inspect [IMAGE] | send HOST... [--image IMAGE]`: what an image holds; the same image on all boxes.

Build with image/build.sh.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import Any

from image.inspection import inspect
from image.sending import send
from launcher.knobs import IMAGE


def run(arguments: list[str]) -> int:
    """Exit status: of `send` 1 when a host did not end up with this image."""
    parser = argparse.ArgumentParser(prog="glm53 image", description=__doc__)
    actions = parser.add_subparsers(dest="action", required=True)
    look = actions.add_parser("inspect", help="base, patches, overlays that fit, FlashKDA and labels of an image")
    look.add_argument("image", nargs="?", default=IMAGE)
    look.add_argument("--json", action="store_true")
    sending = actions.add_parser("send", help="copy the image to hosts over ssh and compare ids")
    sending.add_argument("hosts", nargs="+")
    sending.add_argument("--image", default=IMAGE)
    options = parser.parse_args(arguments)
    if options.action == "send":
        results = send(options.image, options.hosts, print)
        return 1 if any(result.state == "failed" for result in results) else 0
    found = inspect(options.image)
    if options.json:
        print(json.dumps(found, indent=2))
        return 0
    print("\n".join(lines(found)))
    return 0


def lines(found: Mapping[str, Any]) -> list[str]:
    """What an image holds, as people read it: a line a fact, then a line a patch, then a line an overlay."""
    facts = ("id", "docker_id", "created", "kit", "base", "base_digest", "flashkda", "patched_tree")
    said = [f"{name:<13} {found.get(name, '')}" for name in facts]
    said += [f"{name:<13} {version}" for name, version in found["versions"].items()]
    said += ["patches", *(f"  {name:<26} {state}" for name, state in found["patches"].items())]
    overlays = found.get("overlays")
    if overlays is None:
        return [*said, "overlays      not recorded: this image was built by an older kit"]
    said.append("overlays")
    for name, reasons in overlays.items():
        said.append(f"  {name:<26} {'does not fit' if reasons else 'fits'}")
        said += [f"      {reason}" for reason in reasons]
    return said
