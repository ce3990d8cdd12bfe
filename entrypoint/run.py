"""The loop that runs the stages, and how a boot ends.

Stages up to `facts` run once. The rest run for every generation: when one is over, whatever stage waits is
cancelled, the engine is stopped and confirmed gone, and the box joins again.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from core.log import log
from core.refusal import Refusal, Refusals
from core.stage import Stage
from core.units import show_seconds
from entrypoint.board import Board
from entrypoint.boot import Again, Boot, Leave
from entrypoint.stages import rails
from entrypoint.watch import alarm, memory, recall
from entrypoint.watch.vital import Vital
from fabric.round import end
from group.ask import boottime
from group.driver import GenerationOver

GOODBYE_S = 1.5  # how long a leaving or refusing box stays visible, so that the others see why
REAP_S = 1.0
PLANNED = ("told to end", "box refuses")  # in the reason of an end that breaks nothing
# An engine that lost a rank, or stands still, has nothing left to end in good order: vLLM took 5 to 11 s for it (lab,
# four boxes on 2 cores, 2026-11-30).
BROKEN_STOP_S = 3.0
EXIT_REFUSED = 2


async def run(stages: Sequence[Stage[Boot]], each: str, environ: dict[str, str]) -> int:
    """Run the boot until told to end. `each`: key of the first stage that every generation repeats.

    Returns the exit status: 0 after TERM, 2 after a refusal with ON_REFUSAL=exit. A defect of the kit (any other
    exception, also of a background task) ends it with its traceback, engine stopped.
    """
    boot = Boot(environ)
    boot.board = Board(stages, boot)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, boot.leave.set)
    first = next(i for i, stage in enumerate(stages) if stage.key == each)
    status = 0
    try:
        for stage in stages[:first]:
            await _run_stage(boot, stage)
        while True:
            try:
                for stage in stages[first:]:
                    await _run_stage(boot, stage)
            except GenerationOver:
                await _clear(boot)
            except Again as again:
                log("join", f"again: {again}")
    except Leave:
        await _leave(boot)
    except (Refusal, Refusals) as error:
        boot.board.end(failed=True)
        status = await _refused(boot, error.refusals)
    finally:
        await _close(boot)
    return status


async def _run_stage(boot: Boot, stage: Stage[Boot]) -> None:
    """Run one stage; a generation that ends, or TERM, cancels it."""
    boot.board.begin(stage.key)
    task: asyncio.Task[Any] = asyncio.ensure_future(stage.run(boot))
    leave: asyncio.Task[Any] = asyncio.ensure_future(boot.leave.wait())
    over: asyncio.Task[Any] = asyncio.ensure_future(_over(boot))
    late = None
    if stage.deadline_s is not None:
        text = f"late: longer than {show_seconds(stage.deadline_s)}"
        late = asyncio.get_running_loop().call_later(stage.deadline_s, log, stage.key, text)
    try:
        while not (task.done() or leave.done() or over.done()):
            await asyncio.wait((task, leave, over), timeout=REAP_S, return_when=asyncio.FIRST_COMPLETED)
            _reap(boot)
        if boot.leave.is_set():
            raise Leave
        if over.done():
            over.result()
        task.result()
        boot.board.end()
        log(stage.key, "done", took=show_seconds((boot.board.current.ended or 0) - (boot.board.current.started or 0)))
    finally:
        if late is not None:
            late.cancel()
        for one in (task, leave, over):
            one.cancel()
        await asyncio.gather(task, leave, over, return_exceptions=True)


def _reap(boot: Boot) -> None:
    """Forget background tasks that are done; one that failed is a defect and fails the boot."""
    for task in [task for task in boot.tasks if task.done()]:
        boot.tasks.remove(task)
        task.result()
    if boot.members is not None:
        boot.members.reap()


async def _over(boot: Boot) -> None:
    """Raise GenerationOver when the machine stops this box."""
    while boot.driver is None:
        await asyncio.sleep(0.05)
    await boot.driver.over()


def breaks(reason: str) -> bool:
    """True when a generation that ended for this reason was broken: evidence is worth keeping, its engines are not."""
    return not any(words in reason for words in PLANNED)


async def _clear(boot: Boot) -> None:
    """Stop the engine, confirm that it is gone, and be a new incarnation."""
    _, driver, _ = boot.need()
    reason = driver.own.reason
    boot.board.step(f"ending the generation: {reason}")
    broken = breaks(reason)
    if boot.engine is not None and broken:
        await alarm.gather(boot, reason)
    served_s = boottime() - boot.served_at if boot.served_at else 0.0
    boot.alarm, boot.served_at = "", 0.0
    boot.vital, boot.ended = Vital(), (_told(boot, reason), boottime())
    boot.proved, boot.selftest, boot.engine_ready = False, "pending", False
    boot.selftest_lines.clear()
    died = boot.engine_exit is not None
    await stop_engine(boot, hurry=broken)
    if boot.leave.is_set():
        driver.leaving = True
    else:
        await recall.generation_ended(boot, reason, died, served_s)
        await memory.back(boot)
    memory.offer(boot)
    rails.look_again(boot)
    driver.formation, driver.gone = None, True
    driver.poke()


def _told(boot: Boot, reason: str) -> str:
    """The reason with the engine's exit status, where it ended by itself here."""
    status = boot.engine_exit
    return reason if status is None or "this box ended" not in reason else f"{reason} (exit status {status})"


async def stop_engine(boot: Boot, hurry: bool = False) -> None:
    """TERM, KILL after ENGINE_STOP_S, and confirmed gone, told in one line. Repeats while a process hangs.

    `hurry`: its generation is broken: KILL after BROKEN_STOP_S.
    """
    settings, _, _ = boot.need()
    longest = settings.number("ENGINE_STOP_S")
    engine = boot.engine
    while engine is not None:
        stopped = await engine.stop(min(longest, BROKEN_STOP_S) if hurry else longest)
        boot.last_tail = tuple(engine.tail(50))
        log(
            "stop",
            "engine gone" if stopped.confirmed else "engine processes that KILL does not end",
            took=show_seconds(stopped.seconds),
            processes=stopped.ended,
            killed=stopped.killed,
            shm_removed=len(stopped.removed),
        )
        if stopped.confirmed:
            break
        boot.board.step(f"processes hang in the kernel: {', '.join(str(pid) for pid, _ in stopped.left)}")
        await asyncio.sleep(5)
    boot.engine, boot.engine_exit = None, None


async def _leave(boot: Boot) -> None:
    """`down`, or a stopped container: the others see `leaving`, the engine ends, then this process."""
    log(boot.board.current.key, "told to end")
    driver = boot.driver
    if driver is None:
        return
    driver.leaving = True
    driver.poke()
    if boot.engine is not None or driver.own.state == "stopping":
        await stop_engine(boot)
        driver.gone = True
        driver.poke()
    recall.clean_stop(boot)
    await _be_seen(boot)


async def _refused(boot: Boot, refusals: tuple[Refusal, ...]) -> int:
    """A refusal is a state: page up, others see it, until TERM. With ON_REFUSAL=exit: status 2."""
    boot.refuse_also(*(one for one in refusals if one not in boot.group_refusals))
    if boot.driver is not None and boot.engine is not None:
        await stop_engine(boot)
        boot.driver.gone = True
        boot.driver.poke()
    if not boot.exits and boot.page_server is not None:
        await boot.leave.wait()
        return 0
    if boot.group_refusals:
        await _be_seen(boot)
    return EXIT_REFUSED


async def _be_seen(boot: Boot) -> None:
    """Give every live member the time to ask once or twice, so that it knows why this box goes."""
    if boot.members is None:
        return
    until = boottime() + GOODBYE_S
    wanted = boot.member_answers + 2 * len(boot.members.live())
    while boot.member_answers < wanted and boottime() < until:
        await asyncio.sleep(0.05)


async def _close(boot: Boot) -> None:
    """Close what listens, polls and runs; nothing is left behind, whatever ended the boot."""
    if boot.engine is not None:
        await stop_engine(boot)
    if boot.fabric_worker is not None:
        await end(boot.fabric_worker)
    for provider in boot.providers:
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(2):
                await provider.stop()
    if boot.members is not None:
        await boot.members.stop()
    if boot.door is not None:
        await boot.door.close()
    if boot.page_server is not None:
        boot.page_server.end()
    for task in boot.tasks:
        task.cancel()
    tasks = boot.tasks if boot.page_task is None else [*boot.tasks, boot.page_task]
    if tasks:
        await asyncio.wait(tasks, timeout=2)
