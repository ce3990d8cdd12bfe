"""DNS-SD (mDNS, 5353/udp) on the lan interface: announce `_glm53._tcp.local.`, hear the others of this group."""

from __future__ import annotations

import asyncio
import ipaddress
from typing import TYPE_CHECKING

from entrypoint.discovery.provider import Announcement, Hint, OnHint

if TYPE_CHECKING:
    from zeroconf import ServiceListener, Zeroconf
    from zeroconf.asyncio import AsyncServiceBrowser, AsyncZeroconf

SERVICE = "_glm53._tcp.local."
RESOLVE_MS = 3000


class Dnssd:
    """One announcement and one browser, bound to the lan address only."""

    name = "DNS-SD"

    def __init__(self) -> None:
        self._zeroconf: AsyncZeroconf | None = None
        self._browser: AsyncServiceBrowser | None = None
        self._announced = ""
        self._where = ""
        self._heard: dict[str, str] = {}
        self._hints: dict[str, Hint] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, announcement: Announcement, on_hint: OnHint) -> None:
        """Announce and browse. Raises OSError when the interface has no multicast."""
        from zeroconf import IPVersion, NonUniqueNameException, ServiceInfo
        from zeroconf.asyncio import AsyncServiceBrowser, AsyncZeroconf

        self._where = f"{announcement.ifname} ({announcement.lan})"
        self._zeroconf = AsyncZeroconf(interfaces=[announcement.lan], ip_version=IPVersion.V4Only)
        info = ServiceInfo(
            SERVICE,
            f"{announcement.group}-{announcement.instance}.{SERVICE}",
            addresses=[ipaddress.IPv4Address(announcement.lan).packed],
            port=announcement.port,
            properties={"group": announcement.group, "host": announcement.hostname},
            server=f"glm53-{announcement.instance}.local.",
        )
        self._browser = AsyncServiceBrowser(
            self._zeroconf.zeroconf, SERVICE, listener=self._listener(announcement, on_hint)
        )
        # The name holds a random instance, so nobody can own it already: asking first would cost 0.5 s.
        try:
            await self._zeroconf.async_register_service(info, cooperating_responders=True)
        except NonUniqueNameException as error:
            raise OSError(f"DNS-SD name is taken: {error}") from None
        self._announced = f"{announcement.lan}:{announcement.port} as {SERVICE} group={announcement.group}"

    def _listener(self, announcement: Announcement, on_hint: OnHint) -> ServiceListener:
        from zeroconf import ServiceListener

        dnssd = self

        class Listener(ServiceListener):
            """Turns announcements into hints; called on the event loop."""

            def add_service(self, zc: Zeroconf, type_: str, name: str) -> None:
                dnssd._resolve_soon(name, announcement, on_hint)

            def update_service(self, zc: Zeroconf, type_: str, name: str) -> None:
                dnssd._resolve_soon(name, announcement, on_hint)

            def remove_service(self, zc: Zeroconf, type_: str, name: str) -> None:
                hint = dnssd._hints.pop(name, None)
                if hint is not None:
                    on_hint(hint, False)

        return Listener()

    def _resolve_soon(self, name: str, announcement: Announcement, on_hint: OnHint) -> None:
        if name.startswith(f"{announcement.group}-{announcement.instance}."):
            return
        task = asyncio.ensure_future(self._resolve(name, announcement, on_hint))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _resolve(self, name: str, announcement: Announcement, on_hint: OnHint) -> None:
        from zeroconf import IPVersion
        from zeroconf.asyncio import AsyncServiceInfo

        if self._zeroconf is None:
            return
        info = AsyncServiceInfo(SERVICE, name)
        if not await info.async_request(self._zeroconf.zeroconf, RESOLVE_MS):
            self._heard[name] = f"{name.removesuffix('.' + SERVICE)}: announced, but does not say where it is"
            return
        addresses = info.parsed_addresses(IPVersion.V4Only)
        group = (info.decoded_properties or {}).get("group") or "?"
        if not addresses or not info.port:
            return
        if len(self._heard) < 64 or name in self._heard:
            self._heard[name] = f"{addresses[0]}:{info.port} group={group[:40]}"
        if group != announcement.group:
            return
        hint = Hint(addresses[0], info.port, self.name)
        self._hints[name] = hint
        on_hint(hint, True)

    async def stop(self) -> None:
        """Say good-bye and close the sockets."""
        for task in tuple(self._tasks):
            task.cancel()
        if self._browser is not None:
            await self._browser.async_cancel()
        if self._zeroconf is not None:
            await self._zeroconf.async_unregister_all_services()
            await self._zeroconf.async_close()
        self._zeroconf = self._browser = None

    def report(self) -> tuple[str, ...]:
        """What was announced and heard on the lan interface."""
        heard = ", ".join(sorted(set(self._heard.values()))) or "nobody else"
        return (f"on {self._where}: announced {self._announced or 'nothing yet'}; heard {heard}",)
