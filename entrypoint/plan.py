"""The group plan, made in one way by the boxes and by `./glm53 plan`: equal settings and code give an equal hash.

Pure but for the code of the overlays, which is read for the tag of the weights.
"""

from __future__ import annotations

from collections.abc import Mapping

from core.plan import GroupPlan, Topology, Value
from core.settings import Settings
from entrypoint import treatment
from entrypoint.knobs import profile_of
from entrypoint.serve.environment import overlay_settings


def group_plan(
    tp: int, topology: Topology, settings: Settings, environ: Mapping[str, str], sized: Mapping[str, Value]
) -> GroupPlan:
    """What must be equal on all boxes: knobs, the overlays' own variables in `environ`, the tag of the weights, and
    `sized`, which wins. Secrets are left out: a plan is shown and compared. Raises Refusal.
    """
    knobs = {
        name: Value(setting.value, setting.source)
        for name, setting in settings.table.items()
        if setting.knob.scope == "group" and not setting.knob.secret and setting.value is not None
    }
    derived = {**overlay_settings(environ), **treatment.planned(settings, environ)}
    return GroupPlan(tp, topology, profile_of(settings), {**knobs, **derived, **sized})
