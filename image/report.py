"""The table of patches as people and machines read it."""

from __future__ import annotations

from typing import Any

from image.patching import Patch, Report, Verdict


def table(report: Report) -> list[str]:
    """One line a patch: state, where it differs from what we declared, what it does; reasons of a drift below it."""
    width = max(len(verdict.patch.name) for verdict in report.verdicts)
    found = ", ".join(f"{name} {version or '(no version)'}" for name, version in report.versions.items())
    lines = [f"tree: {found or 'none of the packages the patches edit'}"]
    for verdict in report.verdicts:
        note = _note(verdict)
        lines.append(f"  {verdict.patch.name:<{width}}  {verdict.state:<17}  {verdict.patch.title}{note}")
        if verdict.state == "drift":
            for reason in verdict.reasons:
                lines += [f"      {line}".rstrip() for line in reason.splitlines()]
    counts: dict[str, int] = {}
    for verdict in report.verdicts:
        counts[verdict.state] = counts.get(verdict.state, 0) + 1
    lines.append(", ".join(f"{number} {state}" for state, number in counts.items()))
    return lines


def _note(verdict: Verdict) -> str:
    """Said when the tree shows another state than the patch declares for that version."""
    if verdict.declared is None or verdict.state in ("applied", "drift", verdict.declared):
        return ""
    return f"  (declared: {verdict.declared})"


def as_dict(report: Report) -> dict[str, Any]:
    """Plain data for JSON and for the image's labels."""
    return {
        "versions": dict(report.versions),
        "patches": {verdict.patch.name: verdict.state for verdict in report.verdicts},
    }


def catalogue(patches: tuple[Patch, ...]) -> list[str]:
    """What each patch is for, without a tree."""
    lines = []
    for patch in patches:
        versions = ", ".join(f"{version} {state}" for version, state in patch.expected.items())
        lines += [
            f"{patch.name}: {patch.title}",
            f"    why       {patch.why}",
            f"    upstream  {patch.upstream}",
            f"    origin    {patch.origin}",
            f"    {patch.package:<9} {versions}",
            "",
        ]
    return lines[:-1]
