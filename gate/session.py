"""One gate against one server: the client, the ledger of finished requests, the progress line.

Every finished request is on disk before the next starts, so Ctrl-C loses nothing and the same command goes on where
it stopped.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from client.openai import Client
from client.reply import ClientError, Reply
from core.refusal import Refusal
from gate.check import Params
from gate.conditions import Watch
from gate.lag import Lag
from gate.progress import Progress

OFF: dict[str, Any] = {"chat_template_kwargs": {"enable_thinking": False}}
GREEDY: dict[str, Any] = {"temperature": 0}


class Ledger:
    """The finished requests of one check: a line of JSON each, appended and flushed at once."""

    def __init__(self, path: Path | None, params: Params) -> None:
        self.path = path
        self.rows: dict[str, dict[str, Any]] = {}
        self.failures: list[dict[str, Any]] = []
        mark = json.dumps(params, sort_keys=True, default=str)
        if path is None:
            return
        if path.exists():
            lines = path.read_text().splitlines()
            if lines and json.loads(lines[0]).get("params") == mark:
                self._read(lines[1:])
                return
        path.write_text(json.dumps({"params": mark}) + "\n")

    def _read(self, lines: list[str]) -> None:
        for line in lines:
            try:
                row = json.loads(line)
            except ValueError:
                continue  # the line that a kill cut off: that request is asked again
            if "row" in row:
                self.rows[row["key"]] = row["row"]

    def _append(self, entry: dict[str, Any]) -> None:
        if self.path is not None:
            with self.path.open("a") as file:
                file.write(json.dumps(entry, ensure_ascii=False) + "\n")
                file.flush()
                os.fsync(file.fileno())

    def keep(self, key: str, row: dict[str, Any]) -> None:
        """Write a finished request down."""
        self.rows[key] = row
        self._append({"key": key, "row": row})

    def fail(self, key: str, line: str, partial: dict[str, Any] | None) -> None:
        """Write a failed request down, with what had arrived; it is asked again on resume."""
        entry = {"key": key, "failed": line, "partial": partial}
        self.failures.append(entry)
        self._append(entry)


@dataclass
class Session:
    """What all checks of a gate share.

    series  a word that goes into every prompt's tag: the same series means the same prompts, so runs pair
    data    folder with optional data sets; reference: files to compare with
    """

    client: Client
    progress: Progress
    out: Path | None = None
    series: str = "glm53-gate-1"
    data: Path | None = None
    nll_reference: Path | None = None
    speed_reference: Path | None = None
    label: str = ""
    watch: Watch = field(default_factory=lambda: Watch(None, None))
    lag: Lag = field(default_factory=Lag)
    conditions: dict[str, Any] = field(default_factory=dict)
    version: str = ""
    limit: int = 0  # context length by /v1/models, else by /tokenize
    at_start: dict[str, float] = field(default_factory=dict)  # counters when the gate began

    async def open(self) -> None:
        """Look at the server: is the model served, how long is its context. Raises ClientError."""
        await self.client.served()
        entry = next(entry for entry in await self.client.models() if entry["id"] == self.client.model)
        found = entry.get("max_model_len")
        if not found:
            try:
                found = (await self.client.tokenize("a")).get("max_model_len")
            except ClientError:
                found = None
        self.limit = int(found or 0)
        self.version = await self.client.version()
        self.at_start = await self.counters()

    async def counters(self) -> dict[str, float]:
        """The counters the gate watches over its whole run; empty when there is no /metrics."""
        try:
            found = await self.client.metrics()
        except ClientError:
            return {}
        names = ("vllm:num_preemptions_total", "vllm:generation_tokens_total", "vllm:prompt_tokens_total")
        return {name: found.sum(name) for name in names if found.has(name)}


class Scope:
    """What one check sees: its sizes, the client, and `once`."""

    def __init__(self, session: Session, name: str, params: Params) -> None:
        self.session = session
        self.name = name
        self.params = params
        self.client = session.client
        identity = {**params, "_url": session.client.root, "_model": session.client.model, "_series": session.series}
        path = session.out / "runs" / f"{name}.jsonl" if session.out else None
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
        self.ledger = Ledger(path, identity)

    def __getitem__(self, name: str) -> Any:
        """One of the check's sizes."""
        return self.params[name]

    def budget(self, tokens: int) -> int:
        """New tokens to ask for: what the check wants, or half of a short context."""
        limit = self.session.limit
        return min(tokens, limit // 2) if limit else tokens

    def note(self, text: str) -> None:
        """Show where the check stands, with interim figures."""
        self.session.progress.note(text)

    def tag(self, *parts: object) -> str:
        """12 hex digits that depend on series, check and `parts` only: the same everywhere, and new to a cache."""
        text = "/".join([self.session.series, self.name, *map(str, parts)])
        return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()

    async def once(self, key: str, make: Callable[[], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
        """The row of `key`: from the ledger, else made now and written down. ClientErrors are noted and raised."""
        if key in self.ledger.rows:
            return self.ledger.rows[key]
        try:
            row = await make()
        except ClientError as error:
            self.ledger.fail(key, error.line, error.partial.as_dict() if error.partial else None)
            raise
        self.ledger.keep(key, row)
        return row

    async def ask(self, key: str, messages: Any, **options: Any) -> dict[str, Any]:
        """One chat answer as a row, once. A string stands for one user message."""
        chat = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages

        async def make() -> dict[str, Any]:
            return (await self.client.chat(chat, **options)).as_dict()

        return await self.once(key, make)


async def together(*work: Awaitable[Any]) -> list[Any]:
    """Run side by side; the first error ends and awaits the rest, so no request outlives its check."""
    tasks = [asyncio.ensure_future(item) for item in work]
    try:
        return list(await asyncio.gather(*tasks))
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


def row(reply: Reply, **more: Any) -> dict[str, Any]:
    """A reply as a row of the ledger with more fields."""
    return {**reply.as_dict(), **more}


def out_folder(path: str) -> Path:
    """The --out folder, made when absent. Raises Refusal when it cannot be written."""
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "runs").mkdir(exist_ok=True)
    except OSError as error:
        raise Refusal(
            "--out", f"{path} ({error.strerror})", "a folder that can be written", "Choose another --out."
        ) from None
    return folder
