"""Stages 10-12: launch the committed generation, prove it, watch it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping

from core.log import log
from core.mask import mask_argv
from core.plan import Command
from core.refusal import Refusal, Refusals
from core.row import warnings_first
from core.settings import Settings
from core.units import show_seconds
from entrypoint import pagecache
from entrypoint.boot import Boot
from entrypoint.door.ports import free_port
from entrypoint.serve import api_key, engine_command
from entrypoint.sizing.rows import with_engine_line
from entrypoint.stages import plans, warmth
from entrypoint.supervise import Engine, log_path
from entrypoint.watch import recall, vital
from entrypoint.watch.alarm import attend, end_generation
from entrypoint.watch.guardian import BootWatch, HeadSilent, TokenWatch
from entrypoint.watch.observe import observe
from entrypoint.watch.vital import Vital
from group.ask import boottime
from group.driver import GenerationOver

API_POLL_S = 0.5
SAY_S = 0.5  # the longest between the engine's end and saying so
SILENT_S = 10.0  # a box that has answered nothing for so long makes the head ask its engine for a token
CANARY_PAUSE_S = 15.0
LOOK_S, QUIET_LOOK_S = 1.0, 2.0  # between two readings of vLLM's /metrics; while nothing is asked of it
# How long a random tiny model may fail the questions and still count as healthy: always, in the lab profile only.
EXPECTED = "failed-as-expected"


def command(boot: Boot, settings: Settings, base: Mapping[str, str]) -> Command:
    """vLLM on this box, for the committed record."""
    _, driver, _ = boot.need()
    record = driver.launch
    assert record is not None
    assert boot.group_plan is not None
    key = api_key(settings)
    environment = {**base, **({"VLLM_API_KEY": key} if key else {})}
    return engine_command(boot.group_plan, plans.box_plan(boot, settings, record, boot.engine_port), environment)


async def launch(boot: Boot) -> None:
    """Execute vLLM as this kit's child; done when all boxes have."""
    settings, driver, _ = boot.need()
    own = driver.own
    boot.engine_port = free_port()  # vLLM's API listens there, behind the door
    boot.engine_exit, boot.engine_ready = None, False
    try:
        todo = command(boot, settings, os.environ)
        await warmth.before_launch(boot, settings, todo)
    except (Refusal, Refusals) as error:
        boot.refuse(local=error.refusals)
        if boot.exits:
            raise
        await driver.over()  # the machine ends this generation: this box refuses
    log("launch", " ".join(mask_argv(todo.argv)))
    boot.engine = Engine(
        todo,
        log_path(settings.text("LOG_DIR"), settings.text("ROLE")),
        lambda line: _compare_pool(boot, line),
        box=boot.lan,
        incarnation=f"{own.instance}.{own.n}",
        log_max_bytes=settings.integer("LOG_MAX_BYTES"),
        nice=settings.integer("ENGINE_NICE"),
    )
    recall.engine_is_up(boot)
    if await _started(boot, boot.engine):
        boot.tasks.append(asyncio.create_task(observe(boot, boot.engine)))
        boot.tasks.append(asyncio.create_task(pagecache.keep_clear(boot)))
        boot.tasks.append(asyncio.create_task(_await_exit(boot, boot.engine)))
        driver.engine = "started"
        boot.board.step(f"vLLM runs as pid {boot.engine.pid}")
    driver.poke()
    await driver.until(lambda: driver.own.together)


def _compare_pool(boot: Boot, line: str) -> None:
    """The engine's own `KV cache size` line beside the prediction, on the page and in the log."""
    rows = with_engine_line(boot.rows, boot.pool, line)
    if rows is not None:
        boot.rows = warnings_first(rows)
        log("launch", rows[-1].name, level=rows[-1].level, seen=rows[-1].seen, expected=rows[-1].expected)


async def _started(boot: Boot, engine: Engine) -> bool:
    """Start the engine, whole even when this stage is cancelled meanwhile: a process half made could not be ended."""
    _, driver, _ = boot.need()
    starting = asyncio.ensure_future(engine.start())
    try:
        await asyncio.shield(starting)
    except asyncio.CancelledError:
        await starting
        raise
    except OSError as error:
        log("launch", f"the engine cannot be started: {error}")
        boot.engine_exit, driver.engine = 127, "exited"
        return False
    return True


async def _await_exit(boot: Boot, engine: Engine) -> None:
    """Tell the machine when the engine ends; show its last lines when nobody asked it to."""
    _, driver, _ = boot.need()

    def expected() -> bool:
        return boot.engine is not engine or driver.own.state in ("stopping", "leaving")

    status = await engine.wait()
    if expected():
        return
    boot.engine_exit = status
    boot.last_tail = tuple(engine.tail(50))
    log("watch", f"the engine ended by itself, status {status}; its last lines:")
    for line in boot.last_tail:
        print(f"    {line}", flush=True)
    await recall.hear_all(boot, SAY_S)  # a box that goes takes all engines with it: then the end is not this one's
    if not expected():
        driver.engine = "exited"
        driver.poke()


async def prove(boot: Boot) -> None:
    """The head asks its engine three questions; workers wait for the head's verdict."""
    settings, driver, members = boot.need()
    if not boot.is_head:
        await _wait_for_head(boot)
        return
    await _api_answers(boot, settings)
    if settings.flag("SELF_TEST"):
        await _self_test(boot, settings)
    else:
        boot.selftest = "off"
    boot.proved = boot.selftest in ("passed", "off", EXPECTED)
    boot.served_at = boottime()
    if boot.selftest in ("passed", EXPECTED):
        boot.vital = Vital(answered_at=boottime(), stepped_at=boottime())
    boot.engine_ready = True  # held requests go on only now: nobody gets an answer before the engine was tried
    if boot.door is not None:
        boot.door.changed()
    driver.poke()
    members.poke()  # the others wait for this verdict


async def _wait_for_head(boot: Boot) -> None:
    _, driver, _ = boot.need()
    while True:
        view = boot.head_view()
        about = view.about if view is not None else None
        if about is not None and about.selftest != "pending":
            boot.selftest, boot.proved = about.selftest, about.healthy
            boot.served_at = boottime()
            return
        await attend(boot)
        step = f"{about.stage} {about.step}".strip() if about is not None else "does not answer on the LAN"
        boot.board.step(f"the head: {step}")
        await driver.until(lambda: True)
        await driver.changed(0.5)


async def _api_answers(boot: Boot, settings: Settings) -> None:
    """Until vLLM answers on its loopback port. READY_S is the longest wait; then the generation ends."""
    import httpx

    _, driver, _ = boot.need()
    began, longest = boottime(), settings.number("READY_S")
    moving = BootWatch(settings.number("STALL_S"), boot.caches)
    async with httpx.AsyncClient(trust_env=False, timeout=5) as client:
        while True:
            boot.board.step("waiting for vLLM's API", (boot.engine.tail(1) or ("",))[-1] if boot.engine else "")
            try:
                answer = await client.get(f"http://127.0.0.1:{boot.engine_port}/health")
                if answer.status_code == 200:
                    break
            except httpx.HTTPError:
                pass  # not up yet: the engine's exit, not a refused connection, is what ends the wait
            wrong = moving.look(boot)
            if boottime() - began > longest:
                wrong = f"vLLM's API did not answer within {show_seconds(longest)}"
            if wrong:
                await end_generation(boot, wrong)
            await driver.until(lambda: True)
            await asyncio.sleep(API_POLL_S)
    log("prove", "vLLM's API answers", took=show_seconds(boottime() - began))


async def _self_test(boot: Boot, settings: Settings) -> None:
    from entrypoint import selftest

    _, driver, _ = boot.need()

    def say(line: str) -> None:
        boot.selftest_lines.append(line)
        boot.board.step(line)

    lab = settings.text("ENGINE_PROFILE") == "lab-cpu"
    base = f"http://127.0.0.1:{boot.engine_port}"
    verdict = await selftest.run(base, settings.text("SERVED_NAME"), api_key(settings), say, lab=lab)
    boot.selftest_lines = list(verdict.lines)
    boot.selftest = "passed" if verdict.passed else EXPECTED if verdict.expected_failure else "failed"
    log("prove", f"self-test: {boot.selftest}")
    if driver.own.state == "stopping":
        raise GenerationOver(driver.own.reason)


async def watch(boot: Boot) -> None:
    """Until the generation is over: a rank gone, a box restarted, TERM."""
    settings, _, _ = boot.need()
    boot.ended = ("", 0.0)
    if boot.proved:
        warmth.remember(boot)
    if boot.is_head and boot.proved:
        log(
            "watch",
            "serving",
            url=f"http://{boot.lan}:{settings.text('API_PORT')}/v1",
            model=settings.text("SERVED_NAME"),
        )
    boot.board.step("serving" if boot.proved else "the engine answers, but the self-test failed: see the page")
    await (_watch_tokens(boot, settings) if boot.is_head else _watch_head(boot, settings))


async def _watch_tokens(boot: Boot, settings: Settings) -> None:
    _, driver, _ = boot.need()
    url = f"http://127.0.0.1:{boot.engine_port}"
    tokens = TokenWatch(boot, url, settings.text("SERVED_NAME"), api_key(settings))
    try:
        while True:
            # A pause, not changed(): every answer of a member wakes those that wait for a change.
            await driver.pause(QUIET_LOOK_S if tokens.quiet else LOOK_S)
            await tokens.look()
            await _hear_the_silent(boot, settings)
    finally:
        tokens.close()


async def _watch_head(boot: Boot, settings: Settings) -> None:
    _, driver, _ = boot.need()
    silent = HeadSilent(settings.number("LOST_S"))
    while True:
        await driver.until(lambda: True)
        await driver.changed(1.0)
        await attend(boot)
        view = boot.head_view()
        if view is not None:
            boot.proved, boot.selftest = view.about.healthy, view.about.selftest
        wrong = silent.look(boot)
        if wrong:
            driver.abort = wrong
            driver.poke()


def silent_seats(boot: Boot) -> list[str]:
    """Lan addresses of the generation that have not answered for SILENT_S."""
    _, driver, members = boot.need()
    record, now = driver.own.record, boottime()
    seats = record.seats if record is not None else ()
    known = [members.table[seat.lan] for seat in seats if seat.lan in members.table]
    return [member.lan for member in known if now - member.seen_at > SILENT_S]


async def _hear_the_silent(boot: Boot, settings: Settings) -> None:
    """A box is silent: the engine must give a token within CANARY_S, else the generation is over. A token proves all
    ranks alive, so then it is the LAN that is silent, which is shown and ends nothing.
    """
    from entrypoint.canary import one_token  # the client's packages, not needed before

    silent = silent_seats(boot)
    if not silent or not boot.proved:
        return
    _, driver, _ = boot.need()
    names = ", ".join(silent)
    boot.board.step(f"{names} is silent on the LAN: asking the engine for one token")
    url, longest = f"http://127.0.0.1:{boot.engine_port}", settings.number("CANARY_S")
    wrong = await one_token(url, settings.text("SERVED_NAME"), api_key(settings), longest)
    if wrong:
        driver.abort = f"{names} is silent, and the engine gives no token: {wrong}"
        driver.poke()
        return
    boot.vital = vital.look(boot.vital, None, True, boottime())
    boot.board.step(f"serving; {names} is silent on the LAN, but its rank works")
    # A worker that does not hear the head counts its steps for LOST_S: a token must come well within that.
    until = boottime() + min(CANARY_PAUSE_S, settings.number("LOST_S") / 3)
    while boottime() < until and silent_seats(boot) == silent:
        await driver.changed(1.0)
    if not silent_seats(boot):
        boot.board.step("serving")
