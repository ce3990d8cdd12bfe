"""The listener on API_PORT of every box: relays bytes to the head's engine and parses nothing else.
With no serving generation it holds a new request, then answers 503 with Retry-After and the stage.
"""

from entrypoint.door.door import Door
from entrypoint.door.ports import free_port, who_listens

__all__ = ["Door", "free_port", "who_listens"]
