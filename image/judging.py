"""How patches stand on a tree, read from its text alone: needed, applied, fixed upstream, or drift and why."""

from __future__ import annotations

from collections.abc import Sequence

from image.moved import whereabouts
from image.nearest import nearest
from image.patch import Addition, Edit, Patch, Report, State, Variant, Verdict, Witness
from image.scopes import SourceFile, Span, find
from image.tree import Tree


def check(tree: Tree, patches: Sequence[Patch]) -> Report:
    """Judge every patch on a tree. Reads only. Two patches that would edit the same lines are a drift of both."""
    verdicts = [judge(tree, patch) for patch in patches]
    _refuse_overlaps(tree, verdicts)
    packages = sorted({patch.package for patch in patches})
    return Report(tuple(verdicts), {name: tree.version(name) for name in packages if tree.has(name)})


def judge(tree: Tree, patch: Patch) -> Verdict:
    """How one patch stands on a tree."""
    if not tree.has(patch.package):
        return Verdict(patch, "unverifiable here", reasons=(f"no {patch.package} in this tree",))
    declared = patch.expected.get(tree.version(patch.package))
    for variant in patch.variants:
        state = _fit(tree, variant)
        if state == "needed" and declared in ("fixed upstream", "not applicable"):
            reason = f"declared {declared!r} for this version, but the anchors of {variant.label!r} fit"
            return Verdict(patch, "drift", variant, (reason,), declared)
        if state is not None:
            return Verdict(patch, state, variant, (), declared)
    if any(_holds(tree, witness) for witness in patch.fixed):
        return Verdict(patch, "fixed upstream", None, (), declared)
    if any(_holds(tree, witness) for witness in patch.foreign):
        return Verdict(patch, "not applicable", None, (), declared)
    variant = max(patch.variants, key=lambda variant: _score(tree, variant))
    return Verdict(patch, "drift", variant, tuple(_explain(tree, variant)), declared)


def _holds(tree: Tree, witness: Witness) -> bool:
    source = tree.read(witness.file)
    if not isinstance(source, SourceFile):
        return False
    try:
        spans = source.spans(witness.scope)
    except SyntaxError:
        return False
    return any(not witness.text or find(source.text, witness.text, span) for span in spans)


Part = Edit | Addition


def _parts(variant: Variant) -> tuple[Part, ...]:
    return (*variant.edits, *variant.additions)


def _fit(tree: Tree, variant: Variant) -> State | None:
    """`needed` or `applied` when every part agrees on it, else None."""
    states = {_part_state(tree, part) for part in _parts(variant)}
    if states == {"needed"}:
        return "needed"
    return "applied" if states == {"applied"} else None


def _score(tree: Tree, variant: Variant) -> tuple[int, int]:
    """How near a variant is to the tree: its files that exist, then its parts that fit."""
    files = sum(isinstance(tree.read(edit.file), SourceFile) for edit in variant.edits)
    return files, sum(_part_state(tree, part) != "drift" for part in _parts(variant))


def _explain(tree: Tree, variant: Variant) -> list[str]:
    """Why a variant does not fit, a reason a part."""
    states = [_part_state(tree, part) for part in _parts(variant)]
    if "drift" not in states:
        done = states.count("applied")
        return [f"half applied: {done} of {len(states)} parts are in the tree; restore the base and apply again"]
    reasons = []
    for part, state in zip(_parts(variant), states, strict=True):
        if state == "drift":
            reasons.append(_explain_edit(tree, part) if isinstance(part, Edit) else _explain_addition(tree, part))
    return reasons


def _part_state(tree: Tree, part: Part) -> str:
    """`needed`, `applied` or `drift` of one edit or one added file."""
    if isinstance(part, Addition):
        present = tree.added(part.file)
        if present is None:
            return "needed"
        return "applied" if present == part.content() else "drift"
    source = tree.read(part.file)
    if not isinstance(source, SourceFile):
        return "drift"
    try:
        spans = source.spans(part.scope)
    except SyntaxError:
        return "drift"
    clean, done = places(source, part, spans)
    if len(clean) + len(done) != 1:
        return "drift"
    return "needed" if clean else "applied"


def _explain_addition(tree: Tree, addition: Addition) -> str:
    present = tree.added(addition.file)
    if isinstance(present, str):
        return present
    return f"{addition.file} exists with another content than this kit installs"


def _explain_edit(tree: Tree, edit: Edit) -> str:
    source = tree.read(edit.file)
    if source is None:
        return f"{edit.file} is gone{whereabouts(tree, edit)}"
    if isinstance(source, str):
        return source
    try:
        spans = source.spans(edit.scope)
    except SyntaxError as error:
        return f"{edit.file} does not parse (line {error.lineno}: {error.msg})"
    if not spans:
        close = nearest(source, edit.anchor, (0, len(source.text)))
        return f"{edit.file}: scope {edit.scope} is gone; {close or 'nothing in the file is like the anchor'}"
    where = f"{edit.file}, scope {edit.scope}"
    clean, done = places(source, edit, spans)
    if clean or done:
        lines = ", ".join(str(source.line_of(span[0])) for span in sorted(clean + done))
        return f"{where}: {len(clean)} anchors and {len(done)} replacements, at lines {lines}; expected one"
    elsewhere = find(source.text, edit.anchor, (0, len(source.text)))
    if elsewhere:
        there = ", ".join(f"{source.scope_at(span[0])} line {source.line_of(span[0])}" for span in elsewhere)
        return f"{where}: the anchor moved out of its scope, to {there}"
    close = max(
        (found for span in spans if (found := nearest(source, edit.anchor, span))),
        key=lambda found: found.score,
        default=None,
    )
    return f"{where}: the anchor is gone; {close or 'nothing in the scope is like it'}"


def places(source: SourceFile, edit: Edit, spans: Sequence[Span]) -> tuple[list[Span], list[Span]]:
    """Where the anchor stands and where the replacement stands; one inside the other counts as the outer one."""
    anchors = [found for span in spans for found in find(source.text, edit.anchor, span)]
    replaced = [found for span in spans for found in find(source.text, edit.replacement, span)]
    clean = [span for span in anchors if not any(_inside(span, other) for other in replaced)]
    done = [span for span in replaced if not any(_inside(span, other) for other in anchors)]
    return sorted(set(clean)), sorted(set(done))


def _inside(span: Span, other: Span) -> bool:
    return other[0] <= span[0] and span[1] <= other[1] and span != other


def _refuse_overlaps(tree: Tree, verdicts: list[Verdict]) -> None:
    """Edits must not touch each other's lines, or removing one alone could not restore the base."""
    taken: list[tuple[str, Span, int]] = []
    for index, verdict in enumerate(verdicts):
        if verdict.variant is None or verdict.state not in ("needed", "applied"):
            continue
        for edit in verdict.variant.edits:
            span = place_of(tree, edit)
            for file, other, owner in taken:
                if file == edit.file and span[0] < other[1] and other[0] < span[1]:
                    both = f"{verdicts[owner].patch.name} and {verdict.patch.name} edit the same lines of {file}"
                    for at in {owner, index}:
                        verdicts[at] = Verdict(verdicts[at].patch, "drift", verdicts[at].variant, (both,))
            taken.append((edit.file, span, index))


def place_of(tree: Tree, edit: Edit) -> Span:
    """Where an edit of a variant that fits stands: its anchor, or its replacement."""
    source = tree.read(edit.file)
    assert isinstance(source, SourceFile)
    clean, done = places(source, edit, source.spans(edit.scope))
    return (clean + done)[0]
