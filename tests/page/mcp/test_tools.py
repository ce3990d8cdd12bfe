"""Every tool against a group that serves: by the SDK's own client and by the plain form, here and on the other box."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import httpx
import httpx2
from mcp.client.client import Client
from mcp.client.session import ClientSession
from mcp.client.streamable_http import streamable_http_client

from entrypoint.status.mcp.paging import LARGEST
from entrypoint.status.mcp.table import TOOLS
from tests.page.asking import BEARER, SECRET, TOKEN, call, client, everything, rpc, told
from tests.stays_up.kits.boxes import Box, ask, until

# tool -> (arguments, what its answer must hold)
CASES: dict[str, tuple[dict[str, Any], str]] = {
    "node_status": ({}, '"healthy":true'),
    "cluster_status": ({}, '"healthy":true'),
    "preflight": ({}, '"level"'),
    "plan": ({"name": "MAX_NUM"}, '"MAX_NUM_SEQS"'),
    "memory": ({}, '"slope_per_hour"'),
    "throughput": ({"last": 3}, '"order":"newest last"'),
    "cache_sizes": ({}, '"kernels"'),
    "metrics": ({"grep": "generation_tokens"}, "vllm:generation_tokens_total"),
    "latency_percentiles": ({"window_s": 5}, '"time_to_first_token"'),
    "serve_args": ({}, "--tensor-parallel-size"),
    "engine_stacks": ({"rounds": 2, "gap_s": 0.5}, "thread"),
    "versions": ({}, '"kernel"'),
    "read_log": ({}, "stand-in engine"),
    "find_files": ({"path": ".", "name": "*.log"}, "vllm.log"),
    "search_files": ({"path": ".", "pattern": r"rank \d+: \w+"}, "stand-in engine"),
    "evidence": ({}, "20260101T000000-abc"),
}
ELSEWHERE = [name for name, tool in ((tool.name, tool) for tool in TOOLS) if tool.node and name in CASES]


def prepare(box: Box) -> None:
    """What a box has that served for a while."""
    kept = box.folder / "log_dir" / "evidence" / "20260101T000000-abc"
    kept.mkdir(parents=True, exist_ok=True)
    (kept / "summary.json").write_text('{"reason": "a test"}')
    kernels = box.folder / "cache_root" / "kernels"
    kernels.mkdir(parents=True, exist_ok=True)
    (kernels / "one.cubin").write_bytes(b"\x7fELF" + bytes(1000))


def test_the_table_is_what_the_cases_cover(group: list[Box]) -> None:
    listed = {tool["name"]: tool for tool in rpc(group[0].lan, "tools/list").json()["result"]["tools"]}
    assert set(listed) == set(CASES)  # ray_status is listed under ray alone
    assert {tool.name for tool in TOOLS} == {*CASES, "ray_status"}
    for tool in listed.values():
        assert tool["inputSchema"]["type"] == "object"
        assert tool["annotations"]["readOnlyHint"] is True


def by_the_plain_form(lan: str, cases: Mapping[str, tuple[dict[str, Any], str]]) -> None:
    for tool, (arguments, expected) in cases.items():
        text, failed = told(lan, tool, **arguments)
        assert not failed, f"{tool}: {text}"
        assert expected in text, f"{tool}: {text}"
        assert len(text.encode()) <= LARGEST
        assert {"items", "next", "box", "at"} <= set(json.loads(text)), tool


def by_the_sdks_client(lan: str, cases: Mapping[str, tuple[dict[str, Any], str]]) -> None:
    async def drive() -> dict[str, tuple[bool, str]]:
        found = {}
        async with (
            httpx2.AsyncClient(headers=BEARER, timeout=60, trust_env=False) as http,
            Client(streamable_http_client(f"http://{lan}:8082/mcp", http_client=http)) as asking,
        ):
            assert {tool.name for tool in (await asking.list_tools()).tools} == set(cases)
            for tool, (arguments, _) in cases.items():
                result = await asking.call_tool(tool, arguments)
                found[tool] = (bool(result.is_error), getattr(result.content[0], "text", ""))
        return found

    for tool, (failed, text) in anyio.run(drive).items():
        assert not failed, f"{tool}: {text}"
        assert cases[tool][1] in text, f"{tool}: {text}"
        json.loads(text)


def test_the_plain_form_drives_every_tool(group: list[Box]) -> None:
    for box in group:
        prepare(box)
    by_the_plain_form(group[0].lan, CASES)


def test_the_sdks_client_drives_every_tool(group: list[Box]) -> None:
    for box in group:
        prepare(box)
    by_the_sdks_client(group[0].lan, CASES)


def test_the_sdks_client_without_the_token_reads_no_file(group: list[Box]) -> None:
    async def drive() -> tuple[Any, Any]:
        async with Client(streamable_http_client(f"http://{group[0].lan}:8082/mcp")) as asking:
            return await asking.call_tool("read_log", {}), await asking.call_tool("node_status", {})

    refused, answered = anyio.run(drive)
    assert refused.is_error
    assert "STATUS_TOKEN" in refused.content[0].text
    assert not answered.is_error


def test_an_older_client_that_shakes_hands(group: list[Box]) -> None:
    async def drive() -> tuple[str, Any]:
        async with (
            httpx2.AsyncClient(headers=BEARER, timeout=60, trust_env=False) as http,
            streamable_http_client(f"http://{group[0].lan}:8082/mcp", http_client=http) as streams,
            ClientSession(streams[0], streams[1]) as session,
        ):
            version = (await session.initialize()).protocol_version
            return version, await session.call_tool("read_log", {})

    version, result = anyio.run(drive)
    assert version.startswith("2025")
    assert not result.is_error
    assert "stand-in" in result.content[0].text


def test_the_other_box_answers_for_itself(group: list[Box]) -> None:
    for box in group:
        prepare(box)
    other = group[1]
    for tool in ELSEWHERE:
        arguments, expected = CASES[tool]
        found = call(group[0].lan, tool, node=other.lan, **arguments)
        assert other.lan in found["box"], tool
        if tool != "node_status":
            assert expected in json.dumps(found, separators=(",", ":")), tool
    assert call(group[0].lan, "node_status", node=f"{other.lan}:8082")["rank"] == 1
    assert call(group[0].lan, "node_status", node=group[0].lan)["rank"] == 0
    assert call(group[1].lan, "node_status", node="self")["rank"] == 1


def test_an_unknown_box_is_named_with_those_there_are(group: list[Box]) -> None:
    text, failed = told(group[0].lan, "node_status", node="spark-z")
    assert failed
    assert all(box.lan in text for box in group)


def test_mistakes_are_results_with_a_cure(group: list[Box]) -> None:
    lan = group[0].lan
    for tool, arguments, said in (
        ("search_files", {"path": "."}, "pattern: required"),
        ("search_files", {"path": ".", "pattern": "("}, "pattern:"),
        ("search_files", {"path": ".", "pattern": "a", "limit": 0}, "limit: expected at least 1"),
        ("search_files", {"path": ".", "pattern": "a", "glob": "a/b"}, "no slash"),
        ("find_files", {"path": "/etc"}, "only these folders"),
        ("read_log", {"path": "none.log"}, "No such file"),
        ("read_log", {"lines": "many"}, "lines: expected integer"),
        ("read_log", {"lines": True}, "lines: expected integer"),
        ("metrics", {"grep": "a" * 201}, "at most 200"),
        ("metrics", {"grep": "(?P<"}, "pattern:"),
        ("node_status", {"nod": "x"}, "there are cursor, node"),
        ("evidence", {"folder": "../.."}, "a name as this tool lists it"),
        ("evidence", {"folder": ".."}, "no evidence"),
        ("no_such_tool", {}, "there are node_status"),
    ):
        text, failed = told(lan, tool, **arguments)
        assert failed, (tool, arguments)
        assert said in text, (tool, arguments, text)


def test_without_the_token_files_stay_closed_and_it_says_how(group: list[Box]) -> None:
    for tool in TOOLS:
        if tool.name not in CASES:
            continue
        arguments, _ = CASES[tool.name]
        if tool.name == "latency_percentiles":
            continue
        text, failed = told(group[0].lan, tool.name, None, **arguments)
        assert failed == tool.reads_files, tool.name
        if tool.reads_files:
            assert "STATUS_TOKEN" in text


def test_pages_go_on_where_they_ended(group: list[Box]) -> None:
    prepare(group[0])
    lines = [f"line {number} " + "x" * (number % 300) for number in range(3000)]
    (group[0].folder / "log_dir" / "long.log").write_text("\n".join(lines))
    assert everything(group[0].lan, "read_log", path="long.log", from_start=True, lines=700) == lines
    last = call(group[0].lan, "read_log", path="long.log", lines=50)
    assert last["items"] == lines[-len(last["items"]) :]
    assert last["next"] is None
    assert len(last["items"]) >= 40
    plan = everything(group[0].lan, "plan")
    assert len(plan) > 20
    assert call(group[0].lan, "plan", cursor=10**9)["items"] == []


def test_a_long_line_hides_nothing_behind_it(group: list[Box]) -> None:
    text = "before\n" + "y" * 400_000 + "\nafter\n"
    (group[0].folder / "log_dir" / "wide.log").write_text(text)
    found = everything(group[0].lan, "read_log", path="wide.log", from_start=True)
    assert found[0] == "before"
    assert found[-1] == "after"


def test_no_secret_in_any_answer_or_page(group: list[Box]) -> None:
    box = group[0]
    said = f"token {TOKEN} secret {SECRET} and --api-key topsecretkey HF hf_of_the_tests_0123 x://u:pass1234@h\n"
    for one in group:
        (one.folder / "log_dir" / "leaky.log").write_text(said * 3)
    seen = json.dumps(call(box.lan, "read_log", path="leaky.log"))
    seen += json.dumps(call(box.lan, "search_files", path=".", pattern="secret"))
    seen += json.dumps(call(box.lan, "read_log", path="leaky.log", node=group[1].lan))
    seen += json.dumps(call(box.lan, "serve_args")) + json.dumps(call(box.lan, "plan"))
    with client() as asking:
        for path in ("/", "/status.json", "/logs/leaky.log", "/logs"):
            seen += asking.get(f"http://{box.lan}:8082{path}", headers=BEARER).text
    for secret in (TOKEN, SECRET, "topsecretkey", "hf_of_the_tests_0123", "pass1234"):
        assert secret not in seen
    # nor can an expression find out what a mask hides
    for pattern in (TOKEN[:9], "hf_of", "topsecretk[e]y"):
        assert call(box.lan, "search_files", path=".", pattern=pattern, glob="leaky.log")["items"] == []


def test_protocol_errors_are_json(group: list[Box]) -> None:
    url = f"http://{group[0].lan}:8082/mcp"
    with client() as asking:
        for body, status, code in (
            (b"{", 400, -32700),
            (b"\xff\xfe", 400, -32700),
            (b"[" * 20_000, 400, -32700),
            (
                b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"plan","arguments":{"cursor":NaN}}}',
                400,
                -32700,
            ),
            (b"[]", 400, -32600),
            (b"3", 400, -32600),
            (b'{"jsonrpc":"2.0","id":{},"method":"ping"}', 400, -32600),
            (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}', 400, -32602),
            (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":3}}', 400, -32602),
            (b'{"jsonrpc":"2.0","id":1,"method":"resources/list"}', 200, -32601),
        ):
            answer = asking.post(url, content=body, headers={"Content-Type": "application/json"})
            assert answer.status_code == status, body[:60]
            assert answer.json()["error"]["code"] == code
        assert asking.post(url, json={"jsonrpc": "2.0", "method": "notifications/x"}).status_code == 202
        assert asking.get(url).status_code == 405
        assert asking.post(url, data={"a": "b"}).status_code == 415
        ping = asking.post(url, json={"jsonrpc": "2.0", "id": "p", "method": "ping"}).json()
        assert ping == {"jsonrpc": "2.0", "id": "p", "result": {}}


def test_the_heads_samples_are_told_by_every_box(group: list[Box]) -> None:
    until(lambda: call(group[1].lan, "throughput")["items"] != [], group, 30)
    for box in group:
        found = call(box.lan, "throughput", last=2)
        assert found["source"] == group[0].lan
        assert {"decode", "prefill", "kv", "age_s"} <= set(found["items"][-1])
        assert len(found["items"]) <= 2


def test_the_cluster_is_told_alike_by_every_box(group: list[Box]) -> None:
    for box in group:
        found = call(box.lan, "cluster_status")
        assert [one["rank"] for one in found["items"]] == [0, 1]
        assert found["agree"] is True
        assert found["seen_from"] == box.lan


def test_percentiles_of_what_happens_meanwhile(group: list[Box]) -> None:
    async def both() -> dict[str, Any]:
        asked = asyncio.create_task(asyncio.to_thread(call, group[1].lan, "latency_percentiles", window_s=5))
        await asyncio.sleep(1)
        await asyncio.to_thread(ask, group[0])
        return await asked

    found = asyncio.run(both())
    assert found["items"][0]["histogram"] == "time_to_first_token"


def test_logs_are_listed_read_and_followed(group: list[Box]) -> None:
    box = group[0]
    log = box.folder / "log_dir" / "follow.log"
    log.write_text("one\ntwo\nhalf")
    base = f"http://{box.lan}:8082"
    with client() as asking:
        assert asking.get(f"{base}/logs").status_code == 401
        assert asking.get(f"{base}/logs", headers={"Authorization": "Bearer wrong"}).status_code == 401
        names = [row["name"] for row in asking.get(f"{base}/logs", headers=BEARER).json()["logs"]]
        assert "follow.log" in names
        assert asking.get(f"{base}/logs/follow.log?tail=2", headers=BEARER).text == "two\nhalf\n"
        assert asking.get(f"{base}/logs/none.log", headers=BEARER).status_code == 404
        assert asking.get(f"{base}/logs/follow.log?tail=0", headers=BEARER).status_code == 400
        with asking.stream("GET", f"{base}/logs/follow.log?follow=1&tail=1", headers=BEARER) as answer:
            chunks = answer.iter_text()
            assert next(chunks) == "half\n"
            with log.open("a") as file:
                file.write(f" done\nthree {SECRET}\n")
            assert _until(chunks, "three ********\n")
            log.write_text("new\n")  # begun again
            assert _until(chunks, "new\n")


def _until(chunks: Any, wanted: str) -> bool:
    seen, until = "", time.monotonic() + 10
    while wanted not in seen and time.monotonic() < until:
        seen += next(chunks)
    return wanted in seen


def test_the_form_gives_a_cookie_that_reads_and_does_not_post(group: list[Box]) -> None:
    base = f"http://{group[0].lan}:8082"
    origin = {"Origin": base}
    with client(follow_redirects=False) as asking:
        page = asking.get(f"{base}/logs", headers={"Accept": "text/html"})
        assert page.status_code == 401
        assert "<form" in page.text
        assert asking.post(f"{base}/login", data={"token": TOKEN}).status_code == 403  # no Origin: not a browser's form
        assert asking.post(f"{base}/login", data={"token": "x"}, headers=origin).status_code == 403
        answer = asking.post(f"{base}/login", data={"token": TOKEN}, headers=origin)
        assert answer.status_code == 303
        cookie = answer.headers["set-cookie"]
        assert TOKEN not in cookie
        assert "HttpOnly" in cookie
        assert "samesite=strict" in cookie.lower()
        assert asking.get(f"{base}/logs").status_code == 200
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "read_log", "arguments": {}}}
        assert asking.post(f"{base}/mcp", json=body).json()["result"]["isError"]
        asking.post(f"{base}/logout", headers=origin)
        assert asking.get(f"{base}/logs").status_code == 401
        forged = {"Cookie": "glm53_8082=99999999999." + "0" * 64}
        assert httpx.get(f"{base}/logs", headers=forged, trust_env=False).status_code == 401


def test_the_box_stays_small_with_the_sdk_loaded(group: list[Box]) -> None:
    process = group[0].process
    assert process is not None
    text = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
    pss = next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")) / 1024
    assert pss < 96
