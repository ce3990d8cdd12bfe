"""Statuses as boxes tell them, for the page's tests: a boot, a serving cluster, a refusal; whole by the schema."""

from __future__ import annotations

from typing import Any

from entrypoint.status.memory import Held, Worker, planned, segments

LABELS = ("page", "knobs", "facts", "join", "elect", "preflight", "size", "agree", "fabric", "launch", "prove", "watch")
NAMES = {"10.0.0.9": "spark-a", "10.0.0.10": "spark-b", "10.0.0.11": "spark-c", "10.0.0.12": "spark-d"}
GIB = 1024**3
BUDGET = {
    "weights": 47 * GIB,
    "KV pool: tokens": 22 * GIB,
    "KV pool: KDA states": 4 * GIB,
    "CUDA graphs": GIB,
    "activations": 2 * GIB,
    "long prompts": 3 * GIB,
    "RDMA and NCCL": GIB,
    "CUDA and libraries": 2 * GIB,
    "processes": 6 * GIB,
    "host floor": 3 * GIB,
}
MEMINFO = {
    "MemTotal": 120 * GIB,
    "MemFree": 3 * GIB,
    "MemAvailable": 17 * GIB,
    "AnonPages": 8 * GIB,
    "Shmem": GIB // 2,
    "Cached": 14 * GIB,
    "Buffers": GIB // 4,
    "SReclaimable": GIB // 2,
    "SUnreclaim": GIB // 2,
    "KernelStack": GIB // 64,
    "PageTables": GIB // 8,
    "Percpu": GIB // 64,
}
HELD = Held(MEMINFO, (Worker(7, 82 * GIB, 80 * GIB),), {7: 86 * GIB}, engine=6 * GIB, kit=GIB // 16)


def stage(key: str, state: str = "waiting", began: float | None = None, **more: Any) -> dict[str, Any]:
    base = {"key": key, "label": key.title(), "state": state, "elapsed_s": None, "began_s": began, "deadline_s": None}
    return {**base, "step": "", "detail": "", "phase": "", "share": None, **more}


def stages(last: str, state: str = "running", **more: Any) -> list[dict[str, Any]]:
    """Everything before `last` done, one second each; what comes after waits."""
    at = LABELS.index(last)
    done = [stage(key, "done", began=float(at - i) + 1, elapsed_s=1.0) for i, key in enumerate(LABELS[:at])]
    return [*done, stage(last, state, **{"began": 1.0, "elapsed_s": 1.0, **more}), *map(stage, LABELS[at + 1 :])]


def value(name: str, told: Any, unit: str = "", source: str = "default", why: str = "", measured: str = "") -> Any:
    return {"name": name, "value": told, "unit": unit, "source": source, "why": why, "measured": measured}


PLAN = {
    "hash": "0123456789abcdef",
    "values": [
        value("KV_CACHE_MEMORY", 27917287424, "bytes", "derived", "26 GiB leave 2.1 GiB on the smallest box"),
        value("MAX_NUM_SEQS", 48, "requests", ".env", "Requests decoding at once", "reported: 64 with RecoverSSM"),
        value("CUDA_GRAPHS", True, why="0 runs without CUDA graphs"),
        value("LIMIT_MM", {"image": 16, "video": 0}),
        value("CHAT_TEMPLATE", None),
    ],
}


def row(name: str, level: str, seen: str, expected: str = "", cure: str = "") -> dict[str, str]:
    return {"name": name, "level": level, "seen": seen, "expected": expected, "cure": cure, "link": ""}


def history(count: int = 12, **more: Any) -> dict[str, Any]:
    """Columns of a head that decodes; `more` replaces some."""
    base: dict[str, Any] = {
        "decode": 120.5, "prefill": 2400.0, "running": 4.0, "waiting": 0.0, "kv": 0.31, "per_step": 3.4,
        "accepted": 0.34, "hits": 0.62, "ttft_p50": 0.4, "ttft_p95": 1.9, "gap_p50": 0.03, "gap_p95": 0.06,
        "prefilling": False, "compiling": False,
    }  # fmt: skip
    columns = {name: [told] * count for name, told in base.items()}
    ages = {"age_s": [10.0 * (count - i) for i in range(count)], "every_s": 10.0}
    return {**columns, **ages, "finished": {"stop": 40, "length": 2}, "preempted": 0, "waiting_why": {}, **more}


def load(watts: float | None = 61.0) -> dict[str, Any]:
    gpu = {"name": "NVIDIA GB10", "power_w": watts, "clock_mhz": 2400, "temperature_c": 58, "busy_percent": 93}
    return {
        "cpu": 0.21, "cores": 20, "load": 4.2, "uptime_s": 86400.0,
        "disks": [{"path": "/", "total": 900 * GIB, "free": 300 * GIB}],
        "transfers": {"nvme0n1": {"read": 1000, "written": 2000}}, "gpus": [gpu],
    }  # fmt: skip


def parts(found: Any) -> list[dict[str, Any]]:
    return [{"name": one.name, "size": one.size, "group": one.group, "measured": one.measured} for one in found]


def memory(**more: Any) -> dict[str, Any]:
    return {
        "total": MEMINFO["MemTotal"],
        "available": MEMINFO["MemAvailable"],
        "segments": parts(segments(HELD, BUDGET)),
        "plan": parts(planned(BUDGET, MEMINFO["MemTotal"])),
        "slope_per_hour": None,
        "warning": "",
        "workers": [{"pid": 7, "reserved": 82 * GIB, "allocated": 80 * GIB}],
        **more,
    }


def member(lan: str, age_s: float | None = 0.4, verified: bool = True, note: str = "") -> dict[str, Any]:
    url = f"http://{lan}:8082"
    return {"lan": lan, "port": 8082, "age_s": age_s, "verified": verified, "note": note, "url": url}


def booting(lan: str = "10.0.0.9") -> dict[str, Any]:
    """One box of four that load: spark-a is the head."""
    rank = list(NAMES).index(lan)
    prove: dict[str, Any] = {"began": 130.0, "elapsed_s": 130.0, "deadline_s": 3600.0, "step": "waiting for vLLM's API"}
    return {
        "service": {
            "name": "glm53",
            "served_name": "glm53",
            "hostname": NAMES[lan],
            "version": "0.1.0",
            "profile": "gb10",
            "tp": 4,
        },
        "image": None,
        "box": {
            "lan": lan,
            "role": "worker" if rank else "head",
            "rank": rank,
            "instance": "ab12",
            "n": 2,
            "state": "running",
            "reason": "",
            "ended": "",
        },
        "stage": "prove",
        "stages": stages("prove", **prove, phase="loading weights", share=0.34),
        "healthy": False,
        "mood": "busy",
        "word": "Starting",
        "sentence": "Starting: spark-a (10.0.0.9) at “Prove it” – waiting for vLLM's API",
        "answer": {"answered_s": None, "stepped_s": None, "requests": 0, "compiling": ""},
        "troubles": [],
        "alarms": [],
        "refusals": [],
        "election": {
            "line": "election: head 10.0.0.9 of 10.0.0.9 10.0.0.10 10.0.0.11 10.0.0.12",
            "head": "10.0.0.9",
            "candidates": list(NAMES),
        },
        "members": [member(one) for one in NAMES],
        "generation": {"id": "5f0c9e1d22aa47b3", "epoch": 7, "master_port": 20014, "seats": list(NAMES)},
        "plan": PLAN,
        "rows": [row("kernel", "ok", "6.17.0-1032"), row("swap", "WARN", "1.2GiB used", "none", "sudo swapoff -a")],
        "selftest": {"verdict": "pending", "lines": []},
        "engine": {"pid": 4242, "running": True, "exit": None},
        "throughput": None,
        "load": load(),
        "memory": memory(),
        "url": f"http://{lan}:8002/v1",
    }


def serving(lan: str = "10.0.0.9") -> dict[str, Any]:
    status = booting(lan)
    head = lan == "10.0.0.9"
    return {
        **status,
        "stage": "watch",
        "stages": stages("watch", began=7300.0, elapsed_s=7300.0, step="serving"),
        "healthy": True,
        "mood": "good",
        "word": "Serving",
        "sentence": "Serving: glm53 on 4 boxes",
        "answer": {**status["answer"], "answered_s": 3.0, "stepped_s": 3.0, "requests": 4},
        "selftest": {"verdict": "passed", "lines": ["ok capital of Japan: Tokyo (1.0 s)"]},
        "throughput": history() if head else None,
    }


def refused() -> dict[str, Any]:
    cure = "Set TP in compose/.env, or leave it unset."
    one = {"setting": "TP", "seen": "'<b>four</b>'", "expected": "one of 2, 3, 4, 6, RING3, RING4", "cure": cure}
    return {
        **booting(),
        "stage": "knobs",
        "stages": stages("knobs", "failed", step="TP"),
        "mood": "bad",
        "word": "Refused",
        "sentence": "Refused: spark-a refuses TP: seen '<b>four</b>'",
        "refusals": [one],
        "members": [],
        "election": None,
        "generation": None,
        "plan": None,
        "rows": [],
    }


PEER = (
    "service", "box", "stage", "stages", "healthy", "mood", "word", "sentence", "answer", "troubles", "alarms",
    "refusals", "generation", "rows", "selftest", "throughput", "load", "memory",
)  # fmt: skip


def box(status: dict[str, Any] | None, lan: str, here: bool = False, error: str = "") -> dict[str, Any]:
    return {
        "lan": lan,
        "name": status["service"]["hostname"] if status is not None else "",
        "url": f"http://{lan}:8082",
        "here": here,
        "reachable": status is not None,
        "age_s": 0.0 if here else 0.6 if status is not None else 12.0,
        "heard_s": 0.0 if here else 0.4,
        "error": error,
        "status": {name: status[name] for name in PEER} if status is not None else None,
    }


def cluster(own: dict[str, Any], *others: dict[str, Any]) -> dict[str, Any]:
    """/cluster.json of `own`'s box."""
    rows = [box(own, own["box"]["lan"], here=True), *others]
    said = {(row["status"]["word"], row["status"]["sentence"]) for row in rows if row["status"]}
    verdict = {name: own[name] for name in ("healthy", "mood", "word", "sentence")}
    return {**verdict, "agree": len(said) == 1, "seen_from": own["box"]["lan"], "boxes": rows}


def four(make: Any) -> dict[str, Any]:
    """All four boxes in the same situation."""
    return cluster(make(), *(box(make(lan), lan) for lan in list(NAMES)[1:]))
