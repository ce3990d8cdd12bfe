"""Stages 1-3, once per start of the kit: page up, knobs, facts (with the box's own faults and its way to be found)."""

from __future__ import annotations

import asyncio
import errno
import json
import socket
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from core.lint import misspelt, without_effect
from core.log import log
from core.refusal import Refusal, Refusals
from core.registry import registry
from core.settings import Settings, Source, lenient
from entrypoint.addresses import lan_address
from entrypoint.boot import Boot
from entrypoint.discovery.dnssd import Dnssd
from entrypoint.discovery.provider import Announcement
from entrypoint.discovery.static import StaticPeers
from entrypoint.discovery.verify import FAST_S, IDLE_S, SLOW_S, Members
from entrypoint.knobs import TP_SPELLINGS, topology_of
from entrypoint.stages import check, ground, rails
from entrypoint.status import history, machine
from entrypoint.watch import memory, recall
from group.ask import boottime
from group.driver import Driver
from group.machine import Limits
from group.ports import parse_range
from group.store import Store

ANSWER_UP_S = 5.0


async def page(boot: Boot) -> None:
    """Answer on STATUS_PORT before anything can fail or wait. A port in use ends the kit: nothing could be shown."""
    from entrypoint.status import connections
    from entrypoint.status.access import access_of
    from entrypoint.status.app import create_app
    from entrypoint.status.context import context_of
    from entrypoint.status.server import Server

    early = early_settings(boot.environ)
    listener = _listen(early["STATUS_BIND"], int(early["STATUS_PORT"]))
    access = access_of(boot.environ, int(early["STATUS_PORT"]))
    connections.hush()
    boot.page_server = Server(create_app(context_of(boot, access)))
    boot.page_task = asyncio.create_task(boot.page_server.serve(sockets=[listener]))
    async with asyncio.timeout(ANSWER_UP_S):
        while not boot.page_server.started:
            await asyncio.sleep(0.01)
    boot.board.step(f"http://{early['STATUS_BIND']}:{early['STATUS_PORT']}/")


def early_settings(environ: dict[str, str]) -> dict[str, str]:
    """STATUS_PORT and STATUS_BIND, read before all others; a bad one is at its default here and refused in stage 2."""
    found = {}
    for name in ("STATUS_PORT", "STATUS_BIND"):
        knob = registry()[name]
        text = environ.get(name) or str(knob.default)
        try:
            knob.parse(text)
        except Refusal:
            text = str(knob.default)
        found[name] = text
    return found


def _listen(host: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(512)
    except OSError as error:
        listener.close()
        used = error.errno == errno.EADDRINUSE
        raise Refusal(
            f"STATUS_PORT {port}",
            "in use by another process" if used else f"{host}:{port}: {error.strerror}",
            "a free port for the page",
            f"See who has it (ss -ltnp 'sport = :{port}'), or set STATUS_PORT in compose/.env on all boxes.",
        ) from None
    return listener


async def knobs(boot: Boot) -> None:
    """Every knob: value, source, type. What is bad is refused, all at once; the good ones are kept for the page."""
    table = registry()
    settings, refusals = lenient(table, boot.environ, sources(boot.environ))
    refusals += misspelt(boot.environ, table) + without_effect(boot.environ, table)
    boot.settings = settings
    boot.tp, named = TP_SPELLINGS[settings.text("TP")]
    boot.topology = topology_of(settings)
    wanted = settings.text("TOPOLOGY")
    if named and wanted not in ("auto", named):
        cure = "Set TP to a number, or TOPOLOGY=auto."
        refusals += (Refusal("TOPOLOGY", f"{wanted} with TP={settings.text('TP')}", named, cure),)
    boot.group_settings = comparable(settings)
    for name, setting in settings.table.items():
        if setting.source != "default":
            log("knobs", name, value=setting.shown, source=setting.source)
    if refusals:
        boot.refuse(local=refusals)
        if boot.exits:
            raise Refusals(refusals)


def sources(environ: Mapping[str, str]) -> dict[str, Source]:
    """Where the launcher says that each variable came from; empty when it does not say, or nothing readable."""
    try:
        given = json.loads(environ.get("GLM53_SOURCES") or "{}")
        return {name: text for name, text in given.items() if isinstance(text, str)}  # type: ignore[misc]
    except (ValueError, AttributeError):
        log("knobs", "GLM53_SOURCES is unreadable: sources are shown as environment")
        return {}


def comparable(settings: Settings) -> dict[str, str]:
    """What boxes compare: the value, not the spelling (26GiB is 27917287424), of every group-scope knob."""
    return {name: _canonical(settings[name]) for name in settings.of_scope("group")}


def _canonical(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


async def facts(boot: Boot) -> None:
    """This box: addresses, memory, disks. Then its door opens, and the others can find it."""
    from entrypoint.status import access

    settings = boot.settings
    assert settings is not None
    boot.facts = await rails.settled(boot.root, ground.disks(settings), settings, boot.board.step, boottime())
    boot.hostname = boot.facts.hostname.split(".", 1)[0]
    memory.offer(boot)
    found = lan_address(boot.facts, settings, settings["PEERS"] or ())
    refusals = list(ground.refusals(boot, settings))
    if isinstance(found, Refusal):
        refusals.append(found)
    else:
        boot.lan, boot.ifname = found
    refusals += access.refusals(boot.environ, early_settings(boot.environ)["STATUS_BIND"], boot.lan, boot.tp)
    refusals += await _open_door(boot, settings)
    if refusals:
        boot.refuse_also(*refusals)
        if boot.exits:
            raise Refusals(tuple(refusals))
    if not boot.lan:
        raise Refusals(tuple(refusals))  # nobody could reach this box: the page alone stays up
    boot.facts = replace(boot.facts, hostname=boot.hostname)
    await check.warm_up(boot, settings)
    boot.tasks.append(asyncio.create_task(machine.watch(boot, boot.machine)))
    boot.tasks.append(asyncio.create_task(history.fill(boot, boot.history)))
    await ground.sweep(boot, settings)
    await _join_group(boot, settings)
    boot.board.step(f"{boot.hostname}: lan address {boot.lan} on {boot.ifname}")


async def _open_door(boot: Boot, settings: Settings) -> list[Refusal]:
    from entrypoint.door import Door

    bind = early_settings(boot.environ)["STATUS_BIND"]
    door = Door(
        bind,
        settings.integer("API_PORT"),
        target=lambda: target(boot),
        hold_s=settings.number("MODEL_WAIT_S"),
        stage=lambda: boot.board.current.label,
    )
    try:
        await door.start()
    except Refusal as refusal:
        return [refusal]
    boot.door = door
    return []


def target(boot: Boot) -> tuple[str, int] | None:
    """Where the door leads: the head to its own engine once that is ready, a worker to the head's door."""
    driver, settings = boot.driver, boot.settings
    if driver is None or settings is None or driver.own.record is None or driver.own.state != "running":
        return None
    if not driver.own.together:
        return None
    head = driver.own.record.head.lan
    if head == boot.lan:
        return ("127.0.0.1", boot.engine_port) if boot.engine_ready else None
    return head, settings.integer("API_PORT")


async def _join_group(boot: Boot, settings: Settings) -> None:
    """From here on others can see this box: protocol, polling, announcements."""
    group, secret = settings.text("GROUP_NAME"), settings.text("GROUP_SECRET") or None
    join_s = settings.number("JOIN_S")
    check_s = settings.number("FABRIC_CHECK_TIMEOUT_S") if settings.text("FABRIC_CHECK") != "0" else 0.0
    refused = any(one.setting == "STATE_DIR" for one in boot.refusals)
    source = boot.lan if settings.is_set("LAN_ADDRESS") else ""
    members = Members(lan=boot.lan, instance="", group=group, secret=secret, source=source)
    driver = Driver(
        lan=boot.lan,
        port=boot.status_port,
        group=group,
        secret=secret,
        limits=Limits(accept_s=join_s + check_s, join_s=join_s, lost_s=settings.number("LOST_S")),
        ports=parse_range(settings.text("PORT_RANGE")),
        store=Store(None if refused else Path(settings.text("STATE_DIR"))),
        about=boot.about,
        sights=members.sights,
    )
    members.instance = driver.own.instance

    def pace() -> float:
        """Fast while something is about to happen, slow while serving or waiting for long."""
        own = driver.own
        if own.state == "running" and own.together and not boot.alarm:
            return SLOW_S
        return FAST_S if boottime() - own.changed_at < 30 or own.state != "joining" else IDLE_S

    def on_change() -> None:
        members.poke()
        if boot.door is not None:
            boot.door.changed()

    members.pace, members.changed, driver.on_change = pace, driver.poke, on_change
    boot.members, boot.driver = members, driver
    recall.kit_starts(boot)
    driver.refused = bool(boot.refusals)
    boot.tasks.append(asyncio.create_task(driver.run()))
    await _announce(boot, settings)


async def _announce(boot: Boot, settings: Settings) -> None:
    _, driver, members = boot.need()
    wanted = settings.text("DISCOVERY")
    if wanted in ("both", "static"):
        boot.providers.append(StaticPeers(settings["PEERS"] or ()))
    if wanted in ("both", "dnssd"):
        boot.providers.append(Dnssd())
    announcement = Announcement(
        driver.group, boot.lan, boot.ifname, boot.status_port, driver.own.instance, boot.hostname
    )

    async def start(provider: Any) -> None:
        try:
            await provider.start(announcement, members.on_hint)
        except OSError as error:
            log("join", f"{provider.name} does not work on {boot.ifname}: {error}")

    for provider in boot.providers:
        boot.tasks.append(asyncio.create_task(start(provider)))  # announcing takes a second: nobody waits for it
