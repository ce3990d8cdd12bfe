"""The knobs that entrypoint reads: the shape of the group and what a box does when it refuses."""

from __future__ import annotations

from collections.abc import Mapping

from core.knob import Knob
from core.plan import Profile, Topology
from core.settings import Settings

# A spelling of TP -> the number of boxes, and the topology that it names too.
TP_SPELLINGS: Mapping[str, tuple[int, Topology | None]] = {
    "2": (2, None),
    "3": (3, None),
    "4": (4, None),
    "6": (6, None),
    "RING3": (3, "triangle"),
    "RING4": (4, "ring"),
}
# auto counts as a switch until the fabric is read.
TOPOLOGIES: Mapping[str, Topology] = {"auto": "switch", "switch": "switch", "ring": "ring", "triangle": "triangle"}
PROFILES: Mapping[str, Profile] = {"gb10": "gb10", "lab-cpu": "lab-cpu"}


def ranks(tp: str) -> int:
    """How many boxes a spelling of TP asks for."""
    return TP_SPELLINGS[tp][0]


def topology_of(settings: Settings) -> Topology:
    """The topology that TP or TOPOLOGY names."""
    return TP_SPELLINGS[settings.text("TP")][1] or TOPOLOGIES[settings.text("TOPOLOGY")]


def profile_of(settings: Settings) -> Profile:
    """What vLLM runs on."""
    return PROFILES[settings.text("ENGINE_PROFILE")]


def _not_in_this_version(*names: str) -> dict[str, str]:
    return dict.fromkeys(names, "another value: this one is not in this version")


_LATER = _not_in_this_version("mentat", "ray")

KNOBS: tuple[Knob, ...] = (
    Knob(
        "TP",
        "choice",
        "4",
        "Tensor-parallel size: how many boxes serve together. RING3 and RING4 also say how the boxes are cabled.",
        choices=tuple(TP_SPELLINGS),
    ),
    Knob(
        "TOPOLOGY",
        "choice",
        "auto",
        "How the boxes are cabled; auto reads it from the fabric.",
        choices=tuple(TOPOLOGIES),
    ),
    Knob(
        "HEAD_HOST",
        "text",
        None,
        "Lan address or host name of the box that must be head; unset, the numerically lowest lan address is.",
    ),
    Knob(
        "ROLE",
        "choice",
        None,
        "Fixes what this box is; set it on all boxes (one head, the rest workers) or on none.",
        scope="box",
        choices=("head", "worker"),
    ),
    Knob(
        "MEMBERSHIP",
        "choice",
        "kit",
        "Who says which boxes belong to the group: the kit itself (DNS-SD and PEERS).",
        choices=("kit", "mentat"),
        check=_LATER.get,
    ),
    Knob(
        "EXECUTOR",
        "choice",
        "mp",
        "Which of vLLM's executors joins the ranks: mp is its own multi-node backend.",
        choices=("mp", "ray", "mentat"),
        check=_LATER.get,
    ),
    Knob(
        "ENGINE_PROFILE",
        "choice",
        "gb10",
        "What vLLM runs on: gb10 boxes, or plain CPUs with a tiny model (the lab).",
        choices=tuple(PROFILES),
    ),
    Knob(
        "GROUP_NAME",
        "text",
        "glm53",
        "Name of the deployment; boxes with another name on the same LAN are ignored.",
        check=lambda name: (
            None if name.replace("-", "").replace("_", "").isalnum() and len(name) <= 40 else "letters, digits, - and _"
        ),
    ),
    Knob(
        "ON_REFUSAL",
        "choice",
        "stay",
        "What a box does with a setting it refuses: stay (the page says what to cure) or exit with status 2.",
        scope="box",
        choices=("stay", "exit"),
    ),
    Knob("SELF_TEST", "flag", "1", "Ask the engine three questions with known answers before calling it healthy."),
    Knob(
        "READY_S",
        "seconds",
        "3600",
        "Longest wait from launching vLLM to its API answering on the head; then the generation is ended.",
        unit="s",
        measured="reported: a cold boot takes about 480 s at TP=4",
        scope="box",
    ),
    Knob(
        "CANARY_S",
        "seconds",
        "120",
        "While a box is silent the head asks the engine for one token; none within this time ends the generation.",
        unit="s",
        measured="reported: a short request waited up to 90 s behind a 120k prefill without the prefill threshold",
        scope="box",
    ),
)
