"""The knobs that fabric reads."""

from __future__ import annotations

from core.knob import Knob

KNOBS: tuple[Knob, ...] = (
    Knob("FABRIC_CHECK", "flag", "1", "Measure an all-reduce over the rails between agreeing and launching."),
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
