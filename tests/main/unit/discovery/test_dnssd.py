"""DNS-SD over real multicast on loopback: two boxes of a group hear each other, another group is ignored."""

from __future__ import annotations

import asyncio
import secrets

from entrypoint.discovery.dnssd import Dnssd
from entrypoint.discovery.provider import Announcement, Hint


def announcement(group: str, last: int) -> Announcement:
    return Announcement(group, f"127.0.9.{last}", "lo", 8000 + last, secrets.token_hex(8), f"box{last}")


def test_boxes_of_a_group_hear_each_other_and_nobody_else() -> None:
    group = f"t-{secrets.token_hex(4)}"

    async def run() -> None:
        boxes = [announcement(group, 21), announcement(group, 22), announcement(f"{group}x", 23)]
        heard: list[set[tuple[str, int]]] = [set(), set(), set()]
        providers = [Dnssd() for _ in boxes]

        def listen(index: int) -> None:
            def on_hint(hint: Hint, there: bool) -> None:
                if there:
                    heard[index].add((hint.host, hint.port))

            tasks.append(asyncio.ensure_future(providers[index].start(boxes[index], on_hint)))

        tasks: list[asyncio.Future[None]] = []
        for index in range(3):
            listen(index)
        await asyncio.gather(*tasks)
        try:
            async with asyncio.timeout(20):
                while not (heard[0] and heard[1]):
                    await asyncio.sleep(0.05)
            assert heard == [{("127.0.9.22", 8022)}, {("127.0.9.21", 8021)}, set()]
            report = providers[0].report()[0]
            assert "announced 127.0.9.21:8021" in report
            assert "127.0.9.22:8022" in report
        finally:
            await asyncio.gather(*(provider.stop() for provider in providers))

    asyncio.run(run())


def test_an_interface_without_that_address_is_an_error_to_report() -> None:
    async def run() -> str:
        provider = Dnssd()
        try:
            await provider.start(Announcement("g", "203.0.113.7", "eth9", 1, "aa", "x"), lambda hint, there: None)
        except OSError as error:
            return str(error)
        finally:
            await provider.stop()
        return ""

    assert asyncio.run(run())
