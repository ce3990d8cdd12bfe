"""Server-sent events from a byte stream: only `data`, as the OpenAI protocol uses nothing else."""

from __future__ import annotations


class Events:
    """Feed bytes as they arrive, get whole `data` payloads back.

    Split lines, split UTF-8, CRLF, comments (keep-alives) and payloads over several data lines are all legal and seen.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The payloads that this chunk completed."""
        lines = (self._rest + chunk).split(b"\n")
        self._rest = lines.pop()
        done: list[bytes] = []
        for raw in lines:
            line = raw[:-1] if raw.endswith(b"\r") else raw
            if not line:
                if self._data:
                    done.append(b"\n".join(self._data))
                    self._data.clear()
            elif line.startswith(b"data:"):
                self._data.append(line[6:] if line.startswith(b"data: ") else line[5:])
        return done

    def end(self) -> list[bytes]:
        """What is left when the stream closes without a final blank line."""
        return self.feed(b"\n\n") if self._rest or self._data else []
