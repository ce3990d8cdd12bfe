"""What a tool is: arguments with bounds, what it may look at, and a result made of items."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from core.mask import known_secrets
from entrypoint.status.context import Context
from entrypoint.status.reading import Root

if TYPE_CHECKING:
    from entrypoint.boot import Boot

KINDS: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}


class ToolError(Exception):
    """A call that cannot be answered; the text is the answer, with isError."""


@dataclass(frozen=True)
class Argument:
    """One argument. `least` and `most` bound a number, or the length of a text; `required` has no default."""

    name: str
    kind: str
    why: str
    default: Any = None
    required: bool = False
    least: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()

    def schema(self) -> dict[str, Any]:
        """JSON Schema of the value."""
        found: dict[str, Any] = {"type": self.kind, "description": self.why}
        length = self.kind == "string"
        if self.least is not None:
            found["minLength" if length else "minimum"] = self.least
        if self.most is not None:
            found["maxLength" if length else "maximum"] = self.most
        if self.choices:
            found["enum"] = list(self.choices)
        if self.default is not None:
            found["default"] = self.default
        return found

    def read(self, value: Any) -> Any:
        """The value, judged. Raises ToolError."""
        if self.kind == "integer" and isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) != (self.kind == "boolean") or not isinstance(value, KINDS[self.kind]):
            raise ToolError(f"{self.name}: expected {self.kind}")
        if isinstance(value, float) and not math.isfinite(value):
            raise ToolError(f"{self.name}: expected a finite number")
        text: Any = value
        measure, what = (len(text), " characters") if self.kind == "string" else (text, "")
        if self.least is not None and measure < self.least:
            raise ToolError(f"{self.name}: expected at least {self.least:g}{what}")
        if self.most is not None and measure > self.most:
            raise ToolError(f"{self.name}: expected at most {self.most:g}{what}")
        if self.choices and value not in self.choices:
            raise ToolError(f"{self.name}: expected one of {', '.join(filter(None, self.choices))}")
        return value


@dataclass(frozen=True)
class Result:
    """What a tool found: a few facts about all of it, and items of which a page is shown.

    ends   where `items` is a page of a file already: the cursor behind each item, and `next` behind all of them
           (None at the end)
    """

    items: Sequence[Any] = ()
    about: Mapping[str, Any] = field(default_factory=dict)
    ends: Sequence[int] | None = None
    next: int | None = None


@dataclass
class Call:
    """One call of a tool: its arguments, and what it may look at."""

    context: Context
    arguments: Mapping[str, Any]

    @property
    def boot(self) -> Boot:
        """This box's boot. Raises ToolError where there is none yet."""
        if self.context.boot is None:
            raise ToolError("this box is not booting")
        return self.context.boot

    def status(self) -> dict[str, Any]:
        """All of /status.json."""
        return self.context.board.status()

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not be in any answer."""
        return secrets_of(self.context)

    def roots(self) -> tuple[Root, ...]:
        """The folders whose files may be read, the logs first."""
        from entrypoint.status.roots import roots

        return roots(self.boot)


@dataclass(frozen=True)
class Tool:
    """One line of the table. `reads_files`: needs the token; `node`: can be asked of another box; `listed`: when."""

    name: str
    why: str
    run: Callable[[Call], Awaitable[Result]]
    arguments: tuple[Argument, ...] = ()
    reads_files: bool = False
    node: bool = False
    listed: Callable[[Context], bool] = lambda context: True
    seconds: float = 20.0

    def all_arguments(self) -> tuple[Argument, ...]:
        """The tool's own, and those that many share."""
        return (*self.arguments, CURSOR, *((NODE,) if self.node else ()))

    def schema(self) -> dict[str, Any]:
        """JSON Schema of the arguments."""
        known = self.all_arguments()
        required = [one.name for one in known if one.required]
        found: dict[str, Any] = {
            "type": "object",
            "properties": {one.name: one.schema() for one in known},
            "additionalProperties": False,
        }
        return {**found, "required": required} if required else found

    def read(self, given: Any) -> dict[str, Any]:
        """Arguments with defaults. Raises ToolError for an unknown, missing or unfit one."""
        if given is None:
            given = {}
        if not isinstance(given, dict):
            raise ToolError("arguments: expected an object")
        known = {one.name: one for one in self.all_arguments()}
        for name in given:
            if name not in known:
                raise ToolError(f"{str(name)[:80]}: no such argument; there are {', '.join(known)}")
        found = {}
        for one in known.values():
            if given.get(one.name) is not None:
                found[one.name] = one.read(given[one.name])
            elif one.required:
                raise ToolError(f"{one.name}: required. {one.why}")
            else:
                found[one.name] = one.default
        return found


CURSOR = Argument("cursor", "integer", "Where to go on: `next` of the page before.", 0, least=0, most=2**53)
NODE = Argument("node", "string", "Ask another box: its host name or address. Empty: this box.", "", most=200)


def secrets_of(context: Context) -> tuple[str, ...]:
    """Values that are secret on this box: by the names of its environment, and its token."""
    own = known_secrets(context.boot.environ) if context.boot is not None else ()
    token = context.access.token
    return own if token is None else (*own, token)
