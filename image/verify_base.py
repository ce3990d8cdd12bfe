"""Looks at an image from inside: patches, overlays, parsers, model registry, CUDA parts, strays. No GPU is needed.

    python3 -m image.verify_base [--write --base-name NAME --base-digest DIGEST] [--json]
    python3 -m image.verify_base --ask FILE

--write also records what was found in /opt/glm53/image.json, which the status page and `./glm53 image inspect` read.
--ask only asks vLLM for parsers and models and keeps the answer, so that an image need not ask twice.
Exit 1 when a row fails.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from core.row import Row, warnings_first
from image import cuda_parts, identity, manifest
from image.install import site_packages
from image.patches import PATCHES
from image.patching import Report, Tree, check
from image.report import as_dict

TOOLKIT = Path("/usr/local/cuda")
PLUGIN = Path(__file__).parent / "parsers" / "glm47_failclosed.py"
KIT_PYTHON = Path("/opt/glm53/venv/bin/python")
ANSWER = Path("/opt/glm53/registry.json")
STRAYS = ("/etc/nccl.conf", "/root/.nccl.conf")
# Asked in a Python of its own: importing vLLM is slow, noisy and may print whatever it likes.
REGISTRY = f"""
import json
from vllm.model_executor.models.registry import ModelRegistry
from vllm.reasoning import ReasoningParserManager
from vllm.tool_parsers import ToolParserManager
ToolParserManager.import_tool_parser({str(PLUGIN)!r})
found = {{}}
found["reasoning glm45"] = ReasoningParserManager.get_reasoning_parser("glm45").__name__
found["tools glm47"] = ToolParserManager.get_tool_parser("glm47").__name__
found["tools glm47_failclosed"] = ToolParserManager.get_tool_parser("glm47_failclosed").__name__
architectures = ModelRegistry.get_supported_archs()
wanted = "Glm5NextForConditionalGeneration"
found["architecture"] = wanted if wanted in architectures else ""
print("FOUND", json.dumps(found))
"""


def patch_rows(report: Report) -> Iterator[Row]:
    """One row a patch that is not in order; one row for the rest."""
    for verdict in report.verdicts:
        if verdict.state in ("drift", "needed"):
            seen = verdict.state if verdict.state == "needed" else "; ".join(verdict.reasons)
            yield Row(f"patch {verdict.patch.name}", "FAIL", seen, "applied", "Build the image again.", "patches")
        elif verdict.declared not in (None, verdict.state) and verdict.state != "applied":
            yield Row(f"patch {verdict.patch.name}", "WARN", verdict.state, str(verdict.declared), "", "patches")
    states = [verdict.state for verdict in report.verdicts]
    applied = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    yield Row("patches", "ok" if "applied" in states else "FAIL", applied, "applied, or fixed upstream")


def overlay_fit(site: Path) -> dict[str, list[str]]:
    """Name -> what keeps it from fitting the vLLM here, of every overlay of the kit; nothing for one that fits."""
    from experimental.overlays import read_all, unfit  # --ask runs where only the patches' own inputs are

    return {overlay.name: [str(misfit) for misfit in unfit(overlay, site)] for overlay in read_all()}


def overlay_rows(fit: Mapping[str, list[str]]) -> Iterator[Row]:
    """One row an overlay that does not fit, which is no fault of the image: without it the image serves."""
    for name, reasons in fit.items():
        if reasons:
            cure = f"Leave it out: ./glm53 --without {name} up -d"
            yield Row(f"overlay {name}", "WARN", "; ".join(reasons), "functions that it knows", cure)
    fitting = sum(not reasons for reasons in fit.values())
    yield Row("overlays", "ok", f"{fitting} of {len(fit)} fit this base")


def ask(kept: Path = ANSWER) -> dict[str, str]:
    """What vLLM has registered; an answer that an earlier layer of the image kept is taken as it is."""
    if kept.is_file():
        answer: dict[str, str] = json.loads(kept.read_text())
        return answer
    command = [sys.executable, "-c", REGISTRY]
    return answer_of(subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, cwd="/"))


def answer_of(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """What a Python with vLLM printed, or why it did not: {"error": ...}."""
    lines = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    if done.returncode or not lines:
        return {"error": (done.stderr.strip().splitlines() or ["no output"])[-1][:200]}
    found: dict[str, str] = json.loads(lines[-1].removeprefix("FOUND "))
    return found


def registry_rows(answer: Mapping[str, str]) -> Iterator[Row]:
    """Parsers and the model's architecture."""
    if "error" in answer:
        cure = "The base does not import vLLM."
        yield Row("vllm", "FAIL", answer["error"], "parsers and models can be asked for", cure)
        return
    for name, found in answer.items():
        level = "ok" if found else "FAIL"
        yield Row(name, level, found or "not registered", "registered")  # type: ignore[arg-type]


def kit_rows(python: Path = KIT_PYTHON) -> Iterator[Row]:
    """The kit itself: its own Python imports the boot and knows every knob."""
    if not python.exists():
        yield Row("kit", "info", f"no {python}", "in an image: the kit's own environment")
        return
    code = "from core.registry import registry; import entrypoint.run; print(len(registry()), 'knobs')"
    done = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=False, cwd=identity.KIT)
    last = (done.stderr.strip().splitlines() or ["no output"])[-1]
    if done.returncode:
        yield Row("kit", "FAIL", last[:200], "imports in its own environment")
    else:
        yield Row("kit", "ok", done.stdout.strip(), "imports in its own environment")


def stray_rows(site: Path, root: Path = Path("/")) -> Iterator[Row]:
    """Files that change behaviour without anybody seeing them."""
    strays = [name for name in STRAYS if (root / name.lstrip("/")).exists()]
    for package in ("vllm", "flashinfer"):
        for suffix in ("orig", "rej"):
            strays += [str(path) for path in (site / package).rglob(f"*.{suffix}")]
    level = "FAIL" if strays else "ok"
    yield Row("strays", level, ", ".join(strays) or "none", "no nccl.conf, .orig or .rej")  # type: ignore[arg-type]


def rows(site: Path, report: Report, fit: Mapping[str, list[str]]) -> tuple[Row, ...]:
    """Everything there is to say, failures first."""
    found = (*patch_rows(report), *overlay_rows(fit), *kit_rows(), *registry_rows(ask()))
    return warnings_first((*found, *cuda_parts.rows(TOOLKIT, site), *stray_rows(site)))


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--base-name", default="")
    parser.add_argument("--base-digest", default="")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--ask", type=Path, metavar="FILE")
    options = parser.parse_args()
    if options.ask:
        answer = ask(options.ask)
        print(json.dumps(answer))
        options.ask.parent.mkdir(parents=True, exist_ok=True)
        options.ask.write_text(json.dumps(answer))
        return 1 if "error" in answer or not all(answer.values()) else 0
    site = site_packages()
    report = check(Tree(site), PATCHES)
    fit = overlay_fit(site)
    found = rows(site, report, fit)
    if options.json:
        print(json.dumps([row.as_dict() for row in found], indent=2))
    else:
        for row in found:
            print(
                f"{row.level:<5} {row.name:<28} {row.seen}" + (f"  (expected: {row.expected})" if row.expected else "")
            )
    if options.write:
        changed = {edit.file for verdict in report.verdicts if verdict.variant for edit in verdict.variant.edits}
        changed |= {added.file for verdict in report.verdicts if verdict.variant for added in verdict.variant.additions}
        table = {name: digest for name, digest in manifest.of(site, ("vllm", "flashinfer")).items() if name in changed}
        identity.write(
            {
                "base": options.base_name,
                "base_digest": options.base_digest,
                **as_dict(report),
                "overlays": fit,
                "patched_tree": manifest.fingerprint(table),
                "site_packages": str(site),
            }
        )
    return 1 if any(row.level == "FAIL" for row in found) else 0


if __name__ == "__main__":
    sys.exit(main())
