"""HTTP to one server: every failure of the way there or back is one ClientError with one clear line."""

from __future__ import annotations

import asyncio
import email.utils
import json
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import httpx

from client.body import message, parsed
from client.reply import ClientError, Timing

T = TypeVar("T")
BUSY = (429, 503)
DEFAULT_PAUSE_S = 1.0  # between tries when a busy server names no Retry-After


class Transport:
    """The connections to `root`; see Client for the times. No proxy is ever used."""

    def __init__(self, root: str, key: str | None, read_s: float, connect_s: float, retry_s: float) -> None:
        self.root, self.read_s, self.retry_s = root, read_s, retry_s
        secure = self.root.startswith("https")
        verify: ssl.SSLContext | bool = ssl.create_default_context() if secure else False
        self._http = httpx.AsyncClient(
            base_url=self.root,
            headers={"authorization": f"Bearer {key}"} if key else {},
            timeout=httpx.Timeout(read_s, connect=connect_s, pool=None),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=128),
            verify=verify,
            trust_env=False,
        )

    async def close(self) -> None:
        """Close every connection."""
        await self._http.aclose()

    async def patiently(self, work: Callable[[], Awaitable[T]], timing: Timing) -> T:
        """Do `work`, again while the server is busy and `retry_s` lasts, as Retry-After asks."""
        while True:
            try:
                return await work()
            except ClientError as error:
                waited = time.perf_counter() - timing.submitted
                pause = error.retry_after_s if error.retry_after_s is not None else DEFAULT_PAUSE_S
                if error.problem != "busy" or waited + pause > self.retry_s:
                    raise
                timing.retries += 1
                await asyncio.sleep(pause)

    async def json(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The JSON object that one request brings. Raises ClientError."""
        timing = Timing(time.perf_counter())

        async def once() -> dict[str, Any]:
            async with self.send(method, path, body, timing) as response:
                await self.refuse(response, path)
                return parsed(await response.aread(), response, self.root + path)

        return await self.patiently(once, timing)

    @asynccontextmanager
    async def send(
        self, method: str, path: str, body: Mapping[str, Any] | None, timing: Timing
    ) -> AsyncIterator[httpx.Response]:
        """The response with its body unread. Every transport failure becomes one ClientError."""

        async def mark(event: str, info: Mapping[str, Any]) -> None:
            # service starts when the request's first byte leaves: waits for a connection are ours, not the server's
            if event.endswith("send_request_headers.started"):
                timing.sent = time.perf_counter()

        content = None if body is None else json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
        headers = {"content-type": "application/json"} if content is not None else {}
        url = self.root + path
        timing.sent = time.perf_counter()
        try:
            async with self._http.stream(
                method, path, content=content, headers=headers, extensions={"trace": mark}
            ) as response:
                yield response
        except httpx.ConnectTimeout:
            raise ClientError("unreachable", f"{url}: no connection (or no TLS handshake) in time") from None
        except httpx.ConnectError as error:
            words = str(error)
            if "SSL" in words or (url.startswith("https") and not words):  # wordless: hung up during the handshake
                raise ClientError("tls", f"{url}: TLS failed ({words or 'the server does not speak it'})") from None
            raise ClientError("unreachable", f"{url}: cannot connect ({_plain(error)})") from None
        except httpx.TimeoutException:
            raise ClientError("timeout", f"{url}: no byte for {self.read_s:g} s") from None
        except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError) as error:
            raise ClientError("cut", f"{url}: the connection was cut ({_plain(error)})") from None
        except httpx.DecodingError as error:
            raise ClientError("bad", f"{url}: the body could not be decoded ({_plain(error)})") from None

    async def refuse(self, response: httpx.Response, path: str) -> None:
        """Raise the one clear line for any status but 200."""
        status = response.status_code
        if status == 200:
            return
        text = (await response.aread()).decode("utf-8", "replace")
        words = message(text)
        wait = retry_after(response.headers.get("retry-after"))
        line = f"{self.root}{path}: HTTP {status}" + (f" ({words})" if words else "")
        if status in BUSY:
            line += f"; it asks to come back in {wait:g} s" if wait is not None else ""
            raise ClientError("busy", line, status=status, retry_after_s=wait, message=words)
        if status in (401, 403):
            line += "; set API_KEY_FILE or API_KEY"
            raise ClientError("auth", line, status=status, message=words)
        raise ClientError("http", line, status=status, message=words)


def retry_after(value: str | None, now: float | None = None) -> float | None:
    """Seconds of a Retry-After header: a number or an HTTP date; None when absent or unreadable."""
    if not value:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        when = email.utils.parsedate_to_datetime(value)
    except ValueError:
        return None
    return max(0.0, when.timestamp() - (time.time() if now is None else now))


def _plain(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
