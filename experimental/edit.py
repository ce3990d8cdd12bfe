"""Change lines of vLLM's functions in memory: anchored edits of their source, not copied files.

The new code goes into the function that is there, so whoever already holds it (a custom op, a class) runs it too.
Standard library only: mounted beside vLLM.
"""

from __future__ import annotations

import importlib.util
import inspect
import linecache
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import CodeType, FunctionType, ModuleType
from typing import Any

Edits = Sequence[tuple[str, str]]


class AnchorError(RuntimeError):
    """The text an edit looks for is not there exactly once."""


class HookFailed(RuntimeError):
    """An overlay's hook could not do its work; the message names the overlay and how to go without it."""


# The overlay whose hook is at work: what it leaves for a later import is its own too.
_at_work: list[str] = []


def owner() -> str | None:
    """The overlay whose hook is at work, or None."""
    return _at_work[-1] if _at_work else None


@contextmanager
def hooking(name: str) -> Iterator[None]:
    """While the block runs, what goes wrong is overlay `name`'s. Raises HookFailed from whatever it was."""
    _at_work.append(name)
    try:
        yield
    except Exception as error:
        cure = f"Leave it out: ./glm53 --without {name} up -d"
        raise HookFailed(f"overlay {name} could not hook: {type(error).__name__}: {error}. {cure}") from error
    finally:
        _at_work.pop()


def edited(source: str, edits: Edits, what: str) -> str:
    """`source` with each (old, new) applied. Raises AnchorError, naming `what`, unless each old occurs exactly once."""
    for old, new in edits:
        if source.count(old) != 1:
            raise AnchorError(f"{what}: {old!r} occurs {source.count(old)} times")
        source = source.replace(old, new)
    return source


def edit(function: Any, edits: Edits, names: Mapping[str, Any]) -> None:
    """Apply `edits` to the code of `function`; `names` become globals of its module. The same call again is nothing.

    Edits see the function's source without its outer indent. Raises AnchorError; also for a function that closes over
    variables or was edited otherwise before.
    """
    function = inspect.unwrap(function)
    assert isinstance(function, FunctionType)
    space, mark = function.__globals__, f"_glm53_edits_of_{function.__qualname__}"
    if mark in space:
        before, by = space[mark]
        if before != tuple(edits):
            raise AnchorError(f"{function.__qualname__} is edited already{f' by overlay {by}' if by else ''}")
        return
    if function.__closure__:
        raise AnchorError(f"{function.__qualname__} closes over variables")
    lines, first = inspect.getsourcelines(function)
    source = edited(textwrap.dedent("".join(lines)), edits, function.__qualname__)
    whole = compile("\n" * (first - 1) + source, function.__code__.co_filename, "exec", dont_inherit=True)
    codes = [item for item in whole.co_consts if isinstance(item, CodeType) and item.co_name == function.__name__]
    if len(codes) != 1:
        raise AnchorError(f"{function.__qualname__} is not one function of its module or class")
    space.update(names)
    space[mark] = tuple(edits), owner()
    function.__code__ = codes[0]


def twin(module: Any, source: str, edits: Edits, name: str, names: Mapping[str, Any]) -> Any:
    """What the edited `source` defines as `name`, with the globals of `module` and `names` around it.

    The source stays readable by inspect, as Triton wants. Raises AnchorError.
    """
    text = edited(source, edits, name)
    file = f"<glm53 {module.__name__}.{name}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    space = {**vars(module), **names}
    exec(compile(text, file, "exec", dont_inherit=True), space)
    return space[name]


class _Later(MetaPathFinder):
    """Runs actions right after a module's own code, in the order they came; the module is found as ever."""

    def __init__(self) -> None:
        self.actions: dict[str, list[tuple[str | None, Callable[[Any], None]]]] = {}

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        actions = self.actions.pop(fullname, None)
        spec = importlib.util.find_spec(fullname) if actions else None
        if actions is None or spec is None or spec.loader is None:
            return None
        run = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            run(module)
            for overlay, action in actions:
                with hooking(overlay) if overlay else nullcontext():
                    action(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


_later = _Later()


def when_imported(name: str, action: Callable[[Any], None]) -> None:
    """Call `action` with the module called `name` now if it is imported, else as soon as it is.

    vLLM's plugins load before its models do; importing a model from there would be early and slow. An action may come
    to run twice, as register() may: it must be one that does nothing the second time.
    """
    if name in sys.modules:
        action(sys.modules[name])
        return
    if _later not in sys.meta_path:
        sys.meta_path.insert(0, _later)
    _later.actions.setdefault(name, []).append((owner(), action))
