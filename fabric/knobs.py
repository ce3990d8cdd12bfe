"""The knobs that fabric reads."""

from __future__ import annotations

from core.knob import Knob

KNOBS: tuple[Knob, ...] = (
    Knob(
        "FABRIC_CHECK",
        "choice",
        "1",
        "Measure an all-reduce over the rails before launching: 0 leaves it out, strict refuses what warns.",
        choices=("0", "1", "strict"),
    ),
    Knob(
        "FABRIC_CHECK_TIMEOUT_S",
        "seconds",
        "120",
        "How long all boxes may take to meet for the fabric check.",
        unit="s",
    ),
    Knob(
        "FABRIC_WAIT_S",
        "seconds",
        "60",
        "After a reboot the rails come up later than the container: so long a start waits for a link and an address on "
        "every port. While it is unset, only within ten minutes of the box's own start.",
        unit="s",
        scope="box",
    ),
    Knob(
        "ROCE_SETTLE_S",
        "seconds",
        "10",
        "An address appears in a port's GID table later than on its netdev: so long a start waits for it.",
        unit="s",
        scope="box",
    ),
    Knob("FABRIC_CHECK_BYTES", "size", "256MiB", "Size of the all-reduce of the fabric check.", unit="bytes"),
    Knob(
        "FABRIC_CHECK_GBPS_PER_DEVICE",
        "number",
        "95",
        "Bus bandwidth expected of one rail; under 80 % of it the check warns.",
        unit="Gb/s",
        measured="reported: about 95 Gb/s a rail",
    ),
)
