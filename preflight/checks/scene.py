"""What every check reads: one survey, the rails in it, and what this deployment wants of the box. Plain data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from core.row import Level, Row
from entrypoint.roce import Rail, rails
from preflight.facts.survey import Survey

PAGE = "docs/troubleshooting.md"


@dataclass(frozen=True)
class Wanted:
    """What the settings say. Paths are as this process sees them.

    boxes, kv_bytes  TP and the KV pin; weights of the checkpoint are `weight_bytes` / boxes each
    loop             the boxes are cabled in a ring or triangle
    subnets, devices FABRIC_SUBNETS or CLUSTER_SUBNET, and NCCL_IB_HCA, which narrow the rails
    gid_index        NCCL_IB_GID_INDEX as somebody set it; "" unset
    cpu              the lab's profile: no GPU and no fabric are expected
    inside           looked at from inside the container: its limits are what the engine gets
    lan_netdev       the netdev of the lan address, "" unknown
    template         CHAT_TEMPLATE: a path, or the template itself; "" for the image's
    input_scale      VLLM_GLM53_MOE_INPUT_SCALE as somebody set it; "" unset
    """

    boxes: int = 4
    kv_bytes: int = 0
    weight_bytes: int = 0
    loop: bool = False
    subnets: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    gid_index: str = ""
    cpu: bool = False
    inside: bool = True
    lan_netdev: str = ""
    model: str = ""
    drafter: str = ""
    cache: str = ""
    logs: str = ""
    template: str = ""
    input_scale: str = ""


@dataclass(frozen=True)
class Scene:
    """A survey with what is wanted of it. `rails` follow from both."""

    survey: Survey
    wanted: Wanted = field(default_factory=Wanted)

    @property
    def rails(self) -> tuple[Rail, ...]:
        """The rails that the kit would use."""
        return rails(
            self.survey.devices, self.survey.box.interfaces, self.wanted.subnets, names_of(self.wanted.devices)
        )


Run = Callable[[Scene], Iterator[Row]]


@dataclass(frozen=True)
class Check:
    """One line of the preflight. `name` is the row's name and the heading of its section in docs/troubleshooting.md.

    seed  words of the original's preflight that this check stands for; "" where the original had none
    """

    name: str
    run: Run
    seed: str = ""

    def rows(self, scene: Scene) -> tuple[Row, ...]:
        """The check's rows under its name and link; one ok row when it finds nothing to say."""
        found = tuple(self.run(scene))
        return tuple(
            Row(self.name, row.level, row.seen, row.expected, row.cure, link_to(self.name)) for row in found
        ) or (Row(self.name, "ok", "nothing wrong"),)


def row(level: Level, seen: str, expected: str = "", cure: str = "") -> Row:
    """A row whose name and link its check adds."""
    return Row("", level, seen, expected, cure)


def link_to(name: str) -> str:
    """The section about a row."""
    return f"{PAGE}#{anchor(name)}"


def anchor(name: str) -> str:
    """A heading's anchor as Markdown viewers make it."""
    return "".join(letter for letter in name.lower().replace(" ", "-") if letter.isalnum() or letter == "-")


def names_of(devices: tuple[str, ...]) -> tuple[str, ...]:
    """Device names of NCCL_IB_HCA's parts: `=rocep1s0f0:1` is rocep1s0f0. `^` (all but) selects nothing here."""
    return tuple(part.lstrip("=").partition(":")[0] for part in devices if part and not part.startswith("^"))
