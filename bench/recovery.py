"""How long recovery takes beside the engine's own start: `python -m bench.recovery FILE...` (rows of bench/chaos).

What the kit adds is everything beyond the engine's own start: noticing, stopping, confirming, agreeing, starting the
kit itself. Nobody can notice a rank that stands still on an idle engine before IDLE_CANARY_S + WEDGE_S, and what the
network takes of a fault's time is the fault's. Writes bench/results/recovery.json, where a run replaces the one with
the same engine, boxes and seed; standard library only.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import sys
from pathlib import Path
from typing import Any

from bench import machine

Row = dict[str, Any]
WAITS = ("rank stands still",)  # faults that are noticed by a deadline of the user's choice


def beyond(row: Row) -> float:
    """Seconds of one recovery that the kit added."""
    return float(row["recovery_s"]) - float(row["engine_s"])


def ended(rows: list[Row]) -> list[Row]:
    """Those survived with a new generation: the others had nothing to recover from."""
    return [row for row in rows if row["ok"] and row["engine_s"]]


def pair(values: list[float]) -> list[float]:
    """[median, worst], rounded to tenths; [] of nothing."""
    return [round(statistics.median(values), 1), round(max(values), 1)] if values else []


def summary(rows: list[Row]) -> str:
    """Median and worst recovery, beside the engine's own start."""
    good = ended(rows)
    if not good:
        return f"{len(rows)} faults, none survived with a new generation"
    prompt = [row for row in good if row["fault"] not in WAITS]
    took, own = pair([row["recovery_s"] for row in good]), pair([row["engine_s"] for row in good])
    extra = pair([beyond(row) for row in prompt])
    kept = len([row for row in rows if row["ok"]])
    return (
        f"{kept} of {len(rows)} faults survived ({rows[0]['engine']}, {rows[0]['boxes']} boxes); recovery median "
        f"{took[0]} s, worst {took[1]} s; engine's own start {own[0]} s; beyond it "
        + (f"median {extra[0]} s, worst {extra[1]} s" if extra else "nothing measured")
    )


def table(rows: list[Row]) -> Row:
    """What was done and how long it took, by fault."""
    by_fault: Row = {}
    for name in sorted({row["fault"] for row in rows}):
        mine = [row for row in rows if row["fault"] == name]
        good = ended(mine)
        by_fault[name] = {
            "done": len(mine),
            "survived": len([row for row in mine if row["ok"]]),
            "ended the generation": len(good),
            "recovery": pair([row["recovery_s"] for row in good]),
            "of it the engine's own start": pair([row["engine_s"] for row in good]),
            "the kit adds": pair([beyond(row) for row in good]),
        }
    return {
        "engine": rows[0]["engine"],
        "boxes": rows[0]["boxes"],
        "seed": rows[0]["seed"],
        "commits": sorted({row.get("commit", "") for row in rows}),
        "faults": len(rows),
        "survived": len([row for row in rows if row["ok"]]),
        "said": summary(rows),
        "median and worst, seconds": by_fault,
    }


def kept(new: list[Row]) -> list[Row]:
    """The recorded runs that none of `new` replaces."""
    file = machine.RESULTS / "recovery.json"
    known: list[Row] = json.loads(file.read_text())["runs"] if file.exists() else []

    def which(run: Row) -> tuple[Any, ...]:
        return run["engine"], run["boxes"], run["seed"]

    return [run for run in known if which(run) not in {which(one) for one in new}]


def main() -> int:
    """Exit status 1 when a fault was not survived."""
    parser = argparse.ArgumentParser(prog="bench.recovery", description="Recovery beside the engine's own start.")
    parser.add_argument("files", type=Path, nargs="+", help="what bench.chaos wrote")
    parser.add_argument("--note", default="", help="what a reader of the result has to know")
    chosen = parser.parse_args()
    today = {"date": datetime.date.today().isoformat(), "machine": machine.machine(), "note": chosen.note}
    runs = [today | table([json.loads(line) for line in file.read_text().splitlines()]) for file in chosen.files]
    machine.write("recovery", {"runs": [*kept(runs), *runs]})
    return 0 if all(run["survived"] == run["faults"] for run in runs) else 1


if __name__ == "__main__":
    sys.exit(main())
