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
