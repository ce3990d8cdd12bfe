"""`smoketest/run.sh BASE [served-name] [--json]`: a line per case; exit status = failed cases, 100 = not begun."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from typing import Any, NoReturn

from client.access import api_key
from client.openai import Client
from client.reply import ClientError
from core.refusal import Refusal
from smoketest.cases import CASES, Case, Wrong

NOT_BEGUN = 100
NO_SERVER = ("unreachable", "tls", "timeout", "cut")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Usage errors end with 100: small numbers count failed cases."""
        self.print_usage(sys.stderr)
        print(f"smoketest: {message}", file=sys.stderr)
        sys.exit(NOT_BEGUN)


def _options() -> argparse.Namespace:
    parser = _Parser(
        prog="smoketest/run.sh",
        description="Eight questions with checkable answers. Exit status: failed cases; 100: usage or no server.",
        epilog="Environment: ONLY=case, TIMEOUT=seconds per request (300), API_KEY_FILE or API_KEY.",
    )
    parser.add_argument("base", help="http://host:8002, or the address of a router")
    parser.add_argument(
        "model", nargs="?", default=os.environ.get("SERVED_NAME") or "glm53", help="served name (glm53)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout instead of lines")
    return parser.parse_args()


def _chosen() -> tuple[Case, ...]:
    only = os.environ.get("ONLY", "")
    chosen = tuple(case for case in CASES if not only or case.name == only)
    if not chosen:
        raise Refusal(
            "ONLY", only, "one of " + ", ".join(case.name for case in CASES), "Correct ONLY or leave it unset."
        )
    return chosen


def _timeout() -> float:
    text = os.environ.get("TIMEOUT") or "300"
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e6:
        raise Refusal("TIMEOUT", text, "seconds above 0", "Leave TIMEOUT unset for 300.")
    return seconds


async def _case(client: Client, case: Case, seconds: float) -> dict[str, Any]:
    started = time.perf_counter()
    try:
        async with asyncio.timeout(seconds * 2):
            passed, note = True, await case.run(client)
    except Wrong as wrong:
        passed, note = False, str(wrong)
    except ClientError as error:
        passed, note = False, error.line
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        passed, note = False, f"the server's answer was not understood ({type(error).__name__}: {error})"
    except TimeoutError:
        passed, note = False, f"not done after {2 * seconds:g} s"
    return {"case": case.name, "passed": passed, "note": note, "seconds": round(time.perf_counter() - started, 3)}


async def _run(options: argparse.Namespace) -> int:
    chosen, seconds = _chosen(), _timeout()
    results = []
    async with Client(options.base, options.model, key=api_key(), read_s=seconds) as client:
        try:
            await client.models()
        except ClientError as error:
            # an answer of any kind is a server, and its cases fail one by one; no answer means nothing to test
            if error.problem in NO_SERVER:
                raise
        for case in chosen:
            result = await _case(client, case, seconds)
            results.append(result)
            if not options.json:
                word = "ok  " if result["passed"] else "FAIL"
                print(f"{word} {case.name} ({result['seconds']:.1f} s): {result['note']}", flush=True)
    failed = sum(not result["passed"] for result in results)
    if options.json:
        print(json.dumps({"base": options.base, "model": options.model, "failed": failed, "cases": results}, indent=1))
    else:
        print(f"{len(results) - failed}/{len(results)} passed")
    return failed


def main() -> int:
    """Exit status of the smoketest."""
    try:
        return asyncio.run(_run(_options()))
    except ClientError as error:
        print(f"smoketest: {error.line}", file=sys.stderr)
    except Refusal as refusal:
        print(f"smoketest: {refusal}", file=sys.stderr)
    except KeyboardInterrupt:
        print("smoketest: interrupted", file=sys.stderr)
    return NOT_BEGUN


if __name__ == "__main__":
    sys.exit(main())
