"""A look every second at this box's engine, every two once it serves: does it move, compile, get orders."""

from __future__ import annotations

import asyncio
from pathlib import Path

from entrypoint.boot import Boot
from entrypoint.supervise import Engine
from entrypoint.watch.counters import Activity, activity, size_of

LOOK_S, SERVING_LOOK_S = 1.0, 2.0  # a look reads /proc of the whole box
CACHE_EVERY = 10  # looks; a cache folder may hold many files
RSS_STEP = 16 * 1024**2
READ_STEP = 1024**2


async def observe(boot: Boot, engine: Engine) -> None:
    """Until the engine ends: `boot.activity`, `boot.compiling`, and `boot.pulse`, which every sign of progress raises.

    Progress is a new line of the log, bytes read, memory taken or freed, a growing kernel cache or a compiler: time
    on the CPU alone is none, a spinning kernel has it too.
    """
    settings, _, _ = boot.need()
    caches = Path(settings.text("CACHE_ROOT"))
    last, line, cached, looks = Activity(), "", 0, 0
    while engine.running and boot.engine is engine:
        now = await asyncio.to_thread(activity, engine.pids())
        newest = (engine.tail(1) or ("",))[-1]
        grown = ""
        if looks % CACHE_EVERY == 0:
            size = await asyncio.to_thread(size_of, caches)
            grown, cached = ("kernel cache" if looks and size > cached else ""), size
        boot.compiling = ", ".join((*now.compiling, *([grown] if grown else [])))
        moved = abs(now.rss_bytes - last.rss_bytes) >= RSS_STEP or now.orders - last.orders >= READ_STEP
        if moved or newest != line or boot.compiling:
            boot.pulse += 1
            last, line = now, newest
        boot.activity, looks = now, looks + 1
        await asyncio.sleep(SERVING_LOOK_S if boot.proved else LOOK_S)
