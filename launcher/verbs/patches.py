"""`./glm53 patches check|apply|remove|list [TREE|IMAGE]`: how the patches stand on an unpacked vLLM, or in an image.

TREE is a folder that holds vllm/ (a site-packages, an unpacked wheel). Exit 0: every patch has a known state;
1: drift, nothing was written; 2: the arguments are wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from core.refusal import Refusal
from image.inspection import Looked, check_image
from image.patches import PATCHES
from image.patching import Tree, changes, check, write
from image.report import as_dict, catalogue, table


def run(arguments: list[str]) -> int:
    """Exit status of the verb."""
    parser = argparse.ArgumentParser(prog="glm53 patches", description=__doc__)
    parser.add_argument("action", choices=("check", "apply", "remove", "list"))
    parser.add_argument("tree", nargs="?", help="a folder that holds vllm/, or an image (check only)")
    parser.add_argument("--json", action="store_true", help="states as JSON")
    options = parser.parse_args(arguments)
    if options.action == "list":
        print("\n".join(catalogue(PATCHES)))
        return 0
    if options.tree is None:
        raise Refusal("TREE", "nothing", "a folder that holds vllm/, or an image", "./glm53 patches check TREE")
    folder = Path(options.tree)
    if not folder.is_dir():
        return _image(options.action, options.tree, as_json=options.json)
    if not ((folder / "vllm").is_dir() or (folder / "flashinfer").is_dir()):
        cure = f"./glm53 patches {options.action} {folder.parent}" if folder.name == "vllm" else "Name site-packages."
        raise Refusal("TREE", str(folder), "a folder that holds vllm/ or flashinfer/", cure)
    tree = Tree(folder)
    report = check(tree, PATCHES)
    if options.action != "check" and not report.drifted:
        result = changes(tree, report, remove=options.action == "remove")
        write(tree, result)
        report = check(Tree(folder), PATCHES)
        if not options.json:
            print(f"{len(result)} files {'restored' if options.action == 'remove' else 'written'}")
    print(json.dumps(as_dict(report), indent=2) if options.json else "\n".join(table(report)))
    if report.drifted:
        names = ", ".join(verdict.patch.name for verdict in report.drifted)
        told = f"drift: {names}; nothing was written. How to re-cut a patch: docs/rebasing.md"
        print(told, file=sys.stderr if options.json else sys.stdout)
        return 1
    return 0


def _image(action: str, reference: str, *, as_json: bool) -> int:
    """An image is only ever looked at: what it holds is changed by building another."""
    if action != "check" or reference.startswith(("/", ".", "~")):  # no image's name begins so
        raise Refusal("TREE", reference, "an existing folder that holds vllm/", f"./glm53 patches {action} TREE")
    looked = check_image(reference)
    if as_json:
        print(json.dumps({**as_dict(looked.report), "foreign": looked.foreign}, indent=2))
    else:
        print("\n".join(seen(looked)))
    return 0 if looked.foreign == [] else 1


def seen(looked: Looked) -> list[str]:
    """The table of an image, the files that differ, and how many they are."""
    if looked.foreign is None:
        return [*table(looked.report), "not compared with the base, file by file, while a patch drifts"]
    count = f"{looked.files} files of the base, {len(looked.foreign)} differ from base + patches"
    return [*table(looked.report), *(f"  {line}" for line in looked.foreign), count]
