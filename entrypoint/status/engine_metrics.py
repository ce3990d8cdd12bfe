"""vLLM's /metrics as text, from any box: its own engine on the head, the head's door elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from entrypoint.status.fetch import FetchFailed, fetch

if TYPE_CHECKING:
    from entrypoint.boot import Boot

TIMEOUT_S = 5.0
LARGEST = 4 * 1024**2


async def scrape(boot: Boot) -> str:
    """The text of the head's /metrics. Raises FetchFailed, also while no engine answers."""
    driver, settings = boot.driver, boot.settings
    record = driver.own.record if driver is not None else None
    if record is None or settings is None or driver is None or driver.own.state != "running":
        raise FetchFailed("no engine runs: this box is in no generation")
    if boot.is_head:
        if not boot.engine_ready:
            raise FetchFailed("vLLM does not answer yet")
        host, port = "127.0.0.1", boot.engine_port
    else:
        host, port = record.head.lan, settings.integer("API_PORT")
    answer = await fetch(host, port, "/metrics", timeout_s=TIMEOUT_S, largest=LARGEST)
    if answer.status != 200:
        raise FetchFailed(f"{host}:{port}/metrics: HTTP {answer.status}")
    return answer.body.decode(errors="replace")
