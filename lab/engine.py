"""A stand-in for vLLM, for tests of the kit only: `python lab/engine.py -m vllm... serve MODEL --nnodes N ...`.

It takes vLLM's argv and ports and uses real torch.distributed: gloo, and the TCPStore at --master-addr:--master-port.
The head answers /health, /metrics, /v1/models and chat completions; every token is one all-reduce over all ranks, so
a stopped rank wedges it as it wedges vLLM. The answer of the sum is right only when every rank took part.

Faults: the file MODEL/fault.json, read at every phase: {"phase": "import|meet|load|warm|serve", "do":
"hang|crash|slow", "rank": 1, "once": true}. `slow` takes 10 s; "once" removes the file.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import sys
import threading
import time
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

# Printed at each phase, in the words that vLLM uses.
PHASES = {
    "import": "Importing",
    "meet": "Initializing distributed environment",
    "load": "Loading weights",
    "warm": "Warming up",
    "serve": "Application startup complete",
}
LOAD_S, WARM_S, SLOW_S = 0.6, 0.4, 10.0
STEP_TIMEOUT_S = 1800  # as vLLM: nothing here times out by itself


def options(argv: list[str]) -> argparse.Namespace:
    """What the stand-in reads of vLLM's arguments; the rest is taken and ignored."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--nnodes", type=int, default=1)
    parser.add_argument("--node-rank", type=int, default=0)
    parser.add_argument("--master-addr", default="127.0.0.1")
    parser.add_argument("--master-port", type=int, default=0)
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--headless", action="store_true")
    words = argv[argv.index("serve") + 1 :]
    known, _ = parser.parse_known_args(words[1:])
    known.model = Path(words[0])
    return known


def enter(phase: str, rank: int, model: Path) -> None:
    """Print where we are, and do what the fault file says."""
    print(f"stand-in engine: rank {rank}: {PHASES[phase]}", flush=True)
    file = model / "fault.json"
    try:
        fault: dict[str, Any] = json.loads(file.read_text())
    except (OSError, ValueError):
        return
    if fault.get("phase") != phase or fault.get("rank", rank) != rank:
        return
    if fault.get("once"):
        file.unlink(missing_ok=True)
    print(f"stand-in engine: rank {rank}: told to {fault['do']}", flush=True)
    if fault["do"] == "crash":
        os._exit(3)
    time.sleep(SLOW_S if fault["do"] == "slow" else 10**6)


class Histogram:
    """Cumulative buckets, as vLLM's; seconds."""

    BOUNDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)

    def __init__(self, name: str) -> None:
        self.name = name
        self.counts = [0] * (len(self.BOUNDS) + 1)

    def observe(self, seconds: float) -> None:
        """One observation."""
        for index, bound in enumerate((*self.BOUNDS, float("inf"))):
            self.counts[index] += seconds <= bound

    def lines(self) -> list[str]:
        """The buckets in the text format."""
        bounds = (*(str(bound) for bound in self.BOUNDS), "+Inf")
        pairs = zip(bounds, self.counts, strict=True)
        return [f'vllm:{self.name}_bucket{{engine="0",le="{bound}"}} {count}\n' for bound, count in pairs]


class Counts:
    """What /metrics shows; it moves only when a step came back."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.running = self.generated = self.prompted = self.steps = self.finished = 0
        self.first, self.gap = Histogram("time_to_first_token_seconds"), Histogram("inter_token_latency_seconds")

    def text(self) -> str:
        """The lines of vLLM's /metrics that the kit reads."""
        with self.lock:
            rows = {
                "num_requests_running": self.running,
                "num_requests_waiting": 0,
                "generation_tokens_total": self.generated,
                "prompt_tokens_total": self.prompted,
                "iteration_tokens_total_count": self.steps,
                "kv_cache_usage_perc": 0.0,
            }
            lines = [f'vllm:{name}{{engine="0"}} {value}\n' for name, value in rows.items()]
            lines.append(f'vllm:request_success_total{{engine="0",finished_reason="length"}} {self.finished}\n')
            return "".join([*lines, *self.first.lines(), *self.gap.lines()])


COUNTS = Counts()
STEPS: queue.Queue[queue.Queue[int]] = queue.Queue()


def token(first: bool = False) -> int:
    """One step of all ranks; the number of ranks that took part. `first` of its request."""
    answer: queue.Queue[int] = queue.Queue()
    began = time.monotonic()
    STEPS.put(answer)
    ranks = answer.get()
    with COUNTS.lock:
        (COUNTS.first if first else COUNTS.gap).observe(time.monotonic() - began)
    return ranks


class Server(ThreadingHTTPServer):
    """As many may wait to be accepted as with vLLM's. Python's five were reset when held clients came all at once."""

    request_queue_size = 2048


class Api(BaseHTTPRequestHandler):
    """The head's API."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """/health, /metrics, /v1/models."""
        if self.path == "/metrics":
            self._send(COUNTS.text().encode(), "text/plain")
        elif self.path == "/v1/models":
            self._send(json.dumps({"object": "list", "data": [{"id": "glm53", "object": "model"}]}).encode())
        else:
            self._send(b"")

    def do_POST(self) -> None:
        """A chat completion: max_tokens steps; the text is the number of ranks, once a token."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        count = max(1, min(int(asked.get("max_tokens") or 8), 10_000))
        with COUNTS.lock:
            COUNTS.running += 1
            COUNTS.prompted += 1
        try:
            if asked.get("stream"):
                self._stream(count, float(asked.get("pause_s", 0)))
                return
            words = [str(token(first=not number)) for number in range(count)]
        finally:
            with COUNTS.lock:
                COUNTS.running -= 1
                COUNTS.finished += 1
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": " ".join(words)},
            "finish_reason": "length",
        }
        usage = {"prompt_tokens": 1, "completion_tokens": count, "total_tokens": count + 1}
        body = {"id": "1", "object": "chat.completion", "model": "glm53", "choices": [choice], "usage": usage}
        self._send(json.dumps(body).encode())

    def _stream(self, count: int, pause_s: float) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        for number in range(count):
            end = "length" if number == count - 1 else None
            choice = {"index": 0, "delta": {"content": f"{token(first=not number)} "}, "finish_reason": end}
            chunk = {"id": "1", "object": "chat.completion.chunk", "model": "glm53", "choices": [choice]}
            self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
            self.wfile.flush()
            time.sleep(pause_s)
        self.wfile.write(b"data: [DONE]\n\n")

    def _send(self, body: bytes, kind: str = "application/json") -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing."""


def main(argv: list[str]) -> int:
    """Boot through the phases, then step for ever."""
    chosen = options(argv)
    rank, model = chosen.node_rank, chosen.model
    enter("import", rank, model)
    import torch
    import torch.distributed as dist

    enter("meet", rank, model)
    dist.init_process_group(
        "gloo",
        init_method=f"tcp://{chosen.master_addr}:{chosen.master_port}",
        rank=rank,
        world_size=chosen.nnodes,
        timeout=timedelta(seconds=STEP_TIMEOUT_S),
    )
    enter("load", rank, model)
    time.sleep(LOAD_S)
    enter("warm", rank, model)
    dist.all_reduce(torch.ones(1024))
    time.sleep(WARM_S)
    enter("serve", rank, model)
    if rank == 0:
        server = Server((chosen.host, chosen.port), Api)
        threading.Thread(target=server.serve_forever, daemon=True).start()
    while True:
        answer = STEPS.get() if rank == 0 else None
        order = torch.ones(1)
        dist.broadcast(order, 0)  # workers wait here, as vLLM's wait for the scheduler's output
        dist.all_reduce(order)
        if answer is not None:
            with COUNTS.lock:
                COUNTS.steps += 1
                COUNTS.generated += 1
            answer.put(int(order.item()))


if __name__ == "__main__":
    sys.exit(main(sys.argv))
