"""Tools that look at vLLM: its metrics, its arguments, its stacks."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from client.metrics import parse
from core.mask import mask_argv
from entrypoint.status.engine_metrics import scrape
from entrypoint.status.fetch import FetchFailed
from entrypoint.status.mcp.percentiles import HISTOGRAMS, percentiles
from entrypoint.status.mcp.tool import Argument, Call, Result, Tool, ToolError
from entrypoint.status.searching import SearchFailed, ask_worker

if TYPE_CHECKING:
    from entrypoint.status.context import Context

MATCH_S = 5.0


async def metrics(call: Call) -> Result:
    """vLLM's counters as it prints them."""
    text = await _scrape(call)
    pattern = call.arguments["grep"]
    if not pattern:
        return Result(text.splitlines())
    samples = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    question = {"job": "match", "pattern": pattern, "text": samples, "secrets": list(call.secrets)}
    try:
        return Result((await ask_worker(question, MATCH_S))["items"])
    except SearchFailed as error:
        raise ToolError(str(error)) from None


async def latency_percentiles(call: Call) -> Result:
    """Two readings and what came in between."""
    window = float(call.arguments["window_s"])
    before = parse(await _scrape(call))
    await asyncio.sleep(window)
    after = parse(await _scrape(call))
    return Result([percentiles(before, after, name) for name in HISTOGRAMS], {"window_s": window, "unit": "s"})


async def serve_args(call: Call) -> Result:
    """The argv of the engine that runs; of the planned one when none does."""
    engine = call.boot.engine
    if engine is None:
        raise ToolError("no engine has been started in this generation")
    argv: list[str] = []
    if engine.running and engine.pid is not None:
        try:
            text = Path(f"/proc/{engine.pid}/cmdline").read_bytes()
            argv = text.decode(errors="replace").rstrip("\0").split("\0")
        except OSError:
            pass  # it ended meanwhile: what it was started with is known
    source = "process" if argv else "command"
    shown = mask_argv(argv or engine.command.argv, call.secrets)
    return Result(shown, {"pid": engine.pid if engine.running else None, "source": source})


async def engine_stacks(call: Call) -> Result:
    """Where every thread of every engine process on this box waits."""
    from evidence.collect import process, stacks

    engine = call.boot.engine
    pids = engine.pids() if engine is not None else ()
    if not pids:
        raise ToolError("no engine process runs on this box")
    items = []
    for number in range(int(call.arguments["rounds"])):
        if number:
            await asyncio.sleep(float(call.arguments["gap_s"]))
        for pid in pids:
            text = await asyncio.to_thread(process, Path("/proc"), pid)
            items.append({"round": number + 1, "pid": pid, "threads": text.splitlines()})
        python = await asyncio.to_thread(stacks, pids)
        items.append({"round": number + 1, "python": python.splitlines()})
    return Result(items)


async def ray_status(call: Call) -> Result:
    """Ray's own words, by its own command."""
    del call
    try:
        process = await asyncio.create_subprocess_exec(
            *("ray", "status"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
    except OSError as error:
        raise ToolError(f"ray: {error.strerror}") from None
    try:
        async with asyncio.timeout(15):
            text, _ = await process.communicate()
    except TimeoutError:
        raise ToolError("ray status: no answer within 15 s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return Result(text.decode(errors="replace").splitlines(), {"exit": process.returncode})


def under_ray(context: Context) -> bool:
    """True where ray joins the ranks: elsewhere there is nothing to ask."""
    return context.boot is not None and context.boot.text("EXECUTOR", "mp") in ("ray", "mentat")


async def _scrape(call: Call) -> str:
    try:
        return await scrape(call.boot)
    except FetchFailed as error:
        raise ToolError(str(error)) from None


GREP = Argument("grep", "string", "Only samples that match this regular expression.", "", most=200)
WINDOW = Argument(
    "window_s", "number", "Seconds between the two readings; the call lasts so long.", 20, least=5, most=120
)
ROUNDS = Argument("rounds", "integer", "How often to look.", 1, least=1, most=5)
GAP = Argument("gap_s", "number", "Seconds between two looks.", 1, least=0.5, most=5)

TOOLS = (
    Tool("metrics", "vLLM's Prometheus metrics, optionally filtered.", metrics, (GREP,)),
    Tool(
        "latency_percentiles",
        "p50, p90 and p99 of first token, inter-token, queue, prefill and decode times over a window.",
        latency_percentiles,
        (WINDOW,),
        seconds=140,
    ),
    Tool("serve_args", "The engine's arguments, secrets masked.", serve_args, node=True),
    Tool(
        "engine_stacks",
        "Where every thread of the engine waits (kernel; Python too where py-spy is installed).",
        engine_stacks,
        (ROUNDS, GAP),
        reads_files=True,
        node=True,
        seconds=40,
    ),
    Tool("ray_status", "What `ray status` prints.", ray_status, node=True, listed=under_ray),
)
