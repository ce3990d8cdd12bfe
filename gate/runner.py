"""Run checks one after the other; whatever happens, what was measured is in the report."""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from client.reply import ClientError
from core.units import show_seconds
from gate import report
from gate.check import Check, Outcome, Params, Result
from gate.session import Scope, Session

GONE = ("unreachable", "tls")  # the server does not answer at all
GIVE_UP_AFTER = 2  # checks in a row that found no server
# what a server of another make can cause by answering in a shape nobody expects
ODD_ANSWERS = (AssertionError, KeyError, IndexError, TypeError, ValueError, AttributeError, ZeroDivisionError)


async def run_check(session: Session, check: Check, params: Params) -> tuple[Result, bool]:
    """One check's result, and whether the server was gone."""
    scope = Scope(session, check.name, params)
    started, gone = time.monotonic(), False
    failures: Sequence[Mapping[str, Any]] = ()
    try:
        outcome = await check.run(scope)
    except ClientError as error:
        gone = error.problem in GONE
        kept = f" ({len(scope.ledger.rows)} requests kept)" if scope.ledger.rows else ""
        outcome = Outcome("inconclusive" if error.problem == "busy" else "fail", error.line + kept)
        failures = scope.ledger.failures or [{"key": "-", "failed": error.line, "partial": None}]
    except ODD_ANSWERS as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        outcome = Outcome("fail", f"the server's answer was not understood ({type(error).__name__}: {error})")
        failures = [
            {"key": f"{where.filename.rsplit('/', 1)[-1]}:{where.lineno}", "failed": repr(error), "partial": None}
        ]
    result = Result(
        check.name,
        check.room,
        check.title,
        check.bar,
        check.why,
        dict(params),
        outcome,
        time.monotonic() - started,
        len(scope.ledger.rows),
        tuple(failures),
    )
    return result, gone


async def run(
    session: Session, checks: Sequence[Check], size: str, overrides: Mapping[str, Mapping[str, Any]]
) -> list[Result]:
    """All checks. Ctrl-C (cancellation) writes the report of what is done and goes on up."""
    results: list[Result] = []
    begun, stamp = time.monotonic(), time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())

    def write(interrupted: bool) -> None:
        if session.out is None:
            return
        head = {
            "label": session.label,
            "url": session.client.root,
            "model": session.client.model,
            "version": session.version,
            "size": size,
            "series": session.series,
            "started": stamp,
            "took": show_seconds(time.monotonic() - begun),
            "interrupted": interrupted,
            "cold": session.conditions.get("cold", []),
            "not_seen": session.conditions.get("not_seen", []),
        }
        report.write(session.out, report.build(head, [result.as_dict() for result in results]))

    try:
        await session.watch.begin()
        await _all(session, checks, size, overrides, results, write)
    except asyncio.CancelledError:
        write(True)
        raise
    return results


async def _all(
    session: Session,
    checks: Sequence[Check],
    size: str,
    overrides: Mapping[str, Mapping[str, Any]],
    results: list[Result],
    write: Callable[[bool], None],
) -> None:
    absent = 0
    async with session.lag.watching():
        for number, check in enumerate(checks, start=1):
            params = {**check.params(size), **overrides.get(check.name, {})}
            session.progress.begin(f"[{number}/{len(checks)}] {check.name}")
            if absent >= GIVE_UP_AFTER:
                outcome = Outcome("inconclusive", "not run: the server is gone")
                result, gone = (
                    Result(check.name, check.room, check.title, check.bar, check.why, params, outcome, 0.0, 0),
                    True,
                )
            else:
                result, gone = await run_check(session, check, params)
            absent = absent + 1 if gone else 0
            results.append(result)
            session.progress.end(result.outcome.verdict, result.outcome.reason)
            session.conditions = await session.watch.end()
            write(False)
