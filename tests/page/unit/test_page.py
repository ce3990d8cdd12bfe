"""The page: what the statuses say, made readable; unknown paths, odd states and hostile text included."""

from __future__ import annotations

import asyncio
import json
import re
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from entrypoint.status.access import Access
from entrypoint.status.app import create_app
from entrypoint.status.context import Context
from entrypoint.status.mcp import paging, state
from entrypoint.status.view import rows, shown, stages, view
from tests.page import scenes


class Board:
    def __init__(self, status: dict[str, Any]) -> None:
        self.told = status

    def status(self) -> dict[str, Any]:
        return self.told


def get(
    status: dict[str, Any],
    path: str,
    method: str = "GET",
    cluster: dict[str, Any] | None = None,
    headers: dict[str, str] | None = None,
    access: Access | None = None,
    body: dict[str, Any] | None = None,
) -> httpx.Response:
    def member(nonce: str, dialled: str, asker: str, news: bool) -> bytes:
        return json.dumps({"nonce": nonce, "dialled": dialled, "asker": asker, "news": news}).encode()

    async def look() -> dict[str, Any]:
        return cluster or scenes.cluster(status)

    async def ask() -> httpx.Response:
        context = Context(Board(status), member, look, access=access or Access())
        transport = httpx.ASGITransport(create_app(context))
        async with httpx.AsyncClient(transport=transport, base_url="http://10.0.0.9:8082") as client:
            return await client.request(method, path, headers=headers, json=body)

    return asyncio.run(ask())


def ticks(html: str) -> list[str]:
    """The state of every stage as drawn."""
    return re.findall(r'<span class="mark" role="img" aria-label="(\w+)">', html)


def test_healthz_is_200_only_when_healthy() -> None:
    assert get(scenes.serving(), "/healthz").status_code == 200
    answer = get(scenes.booting(), "/healthz")
    assert answer.status_code == 503
    assert answer.json()["sentence"] == scenes.booting()["sentence"]


def test_status_json_is_the_board_s_word_and_memory_is_its_part() -> None:
    assert get(scenes.booting(), "/status.json").json() == scenes.booting()
    assert get(scenes.booting(), "/memory").json() == scenes.booting()["memory"]


def test_member_json_needs_a_nonce_and_names_the_addresses_that_dialled_and_was_dialled() -> None:
    nonce = "0123456789abcdef" * 2
    answer = get(scenes.booting(), f"/member.json?nonce={nonce}").json()
    assert answer == {"nonce": nonce, "dialled": "10.0.0.9", "asker": "127.0.0.1", "news": False}
    assert get(scenes.booting(), f"/member.json?nonce={nonce}&news=1").json()["news"] is True
    for bad in ("", "?nonce=", "?nonce=abc", f"?nonce={nonce.upper()}", f"?nonce={nonce}0", f"?nonce={nonce}%0a"):
        assert get(scenes.booting(), f"/member.json{bad}").status_code == 400


@pytest.mark.parametrize("path", ["/nothing", "/status", "/../etc/passwd", "/static/x.css", "/schema/../x.json"])
def test_unknown_paths_are_404(path: str) -> None:
    assert get(scenes.booting(), path).status_code == 404


def test_a_head_larger_than_the_limit_is_refused_however_it_comes() -> None:
    assert get(scenes.serving(), "/healthz", headers={"X": "a" * 15_000}).status_code == 200
    answer = get(scenes.serving(), "/healthz", headers={"X": "a" * 17_000})
    assert answer.status_code == 431
    assert "16384 bytes" in answer.json()["error"]


def test_a_browser_gets_pages_of_logs_and_programs_json_with_and_without_a_token() -> None:
    people = {"Accept": "text/html"}
    for access, status, said in ((Access(), 403, "To turn it on"), (Access("0123456789abcdef"), 401, "/login")):
        page = get(scenes.serving(), "/logs", headers=people, access=access)
        assert page.headers["content-type"].startswith("text/html")
        assert (page.status_code, said in page.text) == (status, True)
        told = get(scenes.serving(), "/logs", access=access)
        assert (told.status_code, told.headers["content-type"]) == (status, "application/json")


@pytest.mark.parametrize("path", ["/logs", "/mcp"])
def test_a_wrong_token_is_called_wrong_and_one_for_a_box_without_is_told_how_to_set_it(path: str) -> None:
    given = {"Authorization": "Bearer 0123456789abcdeX"}
    body: dict[str, Any] | None = {} if path == "/mcp" else None
    method = "GET" if body is None else "POST"
    for access, said in ((Access("0123456789abcdef"), "wrong"), (Access(), "To turn it on")):
        answer = get(scenes.serving(), path, method, headers=given, access=access, body=body)
        assert answer.status_code in (401, 403)
        assert said in answer.json()["error"]


def test_nothing_can_be_changed_through_the_page() -> None:
    assert get(scenes.booting(), "/", "POST").status_code == 405
    assert get(scenes.booting(), "/", "HEAD").status_code == 200


def test_the_page_shows_the_stage_its_step_its_deadline_and_its_progress() -> None:
    html = get(scenes.booting(), "/").text
    assert ticks(html) == ["done"] * 10 + ["running", "waiting"]
    assert "waiting for vLLM&#39;s API" in html
    assert "2m10s of 1h00m" in html
    assert "loading weights 34 %" in html
    assert '<noscript><meta http-equiv="refresh" content="2"></noscript>' in html


def test_the_page_loads_nothing_but_its_own_style_and_script() -> None:
    answer = get(scenes.serving(), "/")
    loaded = re.findall(r'<(?:script|link|img|iframe)[^>]*(?:src|href)="([^"]*)"', answer.text)
    assert all(one.startswith(("/page.", "data:image/svg+xml")) for one in loaded), loaded
    assert not re.findall(r"<script(?![^>]*src=)|\son\w+=|\sstyle=", answer.text)
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


@pytest.mark.parametrize(("path", "kind"), [("/page.css", "text/css"), ("/page.js", "text/javascript")])
def test_style_and_script_are_served_and_may_be_kept(path: str, kind: str) -> None:
    answer = get(scenes.serving(), path)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith(kind)
    assert "immutable" in answer.headers["cache-control"]


def test_a_serving_box_says_how_to_use_it_and_how_fast_it_is() -> None:
    html = get(scenes.serving(), "/", cluster=scenes.four(scenes.serving)).text
    assert "http://10.0.0.9:8002/v1" in html
    assert "<strong>Serving</strong> glm53 on 4 boxes." in html
    assert "40 stop" in html
    assert "refresh" not in get(scenes.serving(), "/?hold=1").text.split("</head>")[0]


def test_a_worker_s_page_shows_the_head_s_history() -> None:
    worker = scenes.serving("10.0.0.11")
    seen = scenes.cluster(worker, scenes.box(scenes.serving(), "10.0.0.9"))
    assert view(worker, seen)["speed"]["source"] == "spark-a"
    assert view(worker, scenes.cluster(worker))["speed"] is None


def test_a_prompt_that_is_computed_is_not_shown_as_zero() -> None:
    status = scenes.serving()
    status["throughput"] = scenes.history(prefill=[0.0] * 12, decode=[0.0] * 12, prefilling=[False] * 11 + [True])
    shown_speed = view(status, scenes.cluster(status))["speed"]
    prefill = next(one for one in shown_speed["plots"] if one["title"] == "Prefill")
    assert [one["text"] for one in prefill["values"]] == ["prefilling"]
    status["throughput"] = scenes.history(compiling=[False] * 11 + [True])
    assert "Still compiling kernels inside requests" in get(status, "/").text


def test_a_refusal_is_shown_whole_and_escaped() -> None:
    html = get(scenes.refused(), "/").text
    assert "<strong>Refused</strong>" in html
    assert "&lt;b&gt;four&lt;/b&gt;" in html
    assert "<b>four" not in html
    assert "Set TP in compose/.env" in html
    assert ticks(html) == ["done", "failed"] + ["waiting"] * 10


def test_what_another_box_says_is_escaped_everywhere() -> None:
    evil = "<script>alert(1)</script>"
    other = json.loads(json.dumps(scenes.serving("10.0.0.10")).replace("spark-b", evil).replace("Japan", evil))
    other["rows"] = [scenes.row(evil, "WARN", evil, evil, evil)]
    other["alarms"] = [{"what": evil, "count": 1, "age_s": 2.0, "line": evil}]
    other["memory"]["segments"].append({"name": evil, "size": 5, "group": "rest", "measured": evil})
    other["load"]["gpus"][0] |= {"name": evil, "power_w": None, "clock_mhz": None, "temperature_c": None}
    other["load"]["gpus"][0]["busy_percent"] = None
    other["throughput"] = scenes.history(finished={evil: 3}, waiting_why={evil: 1})
    other["stages"][3]["label"] = evil
    other["troubles"] = [evil]
    seen = scenes.cluster(scenes.serving("10.0.0.11"), scenes.box(other, "10.0.0.10"))
    html = get(scenes.serving("10.0.0.11"), "/?hold=1", cluster=seen).text
    assert "<script>" not in html
    assert html.count("&lt;script&gt;") >= 10


def test_a_box_that_does_not_answer_is_a_line_with_the_reason() -> None:
    dead = scenes.box(None, "10.0.0.99", error="Connection refused")
    shown_boxes = view(scenes.serving(), scenes.cluster(scenes.serving(), dead))["boxes"]
    assert shown_boxes[1]["state"] == "no answer"
    assert shown_boxes[1]["error"] == "Connection refused"
    assert shown_boxes[1]["rank"] == ""


def test_a_box_of_the_generation_keeps_its_rank_while_it_is_silent() -> None:
    status = scenes.serving()
    head, second, *_ = status["generation"]["seats"]
    silent = scenes.cluster(status, scenes.box(None, second, error="no answer"))
    assert [one["rank"] for one in view(status, silent)["boxes"]] == [0, 1]
    worker = scenes.serving(second)
    seen = view(worker, scenes.cluster(worker, scenes.box(None, head, error="no answer")))["boxes"]
    assert ("head", 0) in [(one["role"], one["rank"]) for one in seen]


def test_a_number_that_is_zero_is_not_coloured_like_a_line() -> None:
    status = scenes.serving()
    status["throughput"] = scenes.history(running=[2] * 12, waiting=[0] * 12)
    requests = next(one for one in view(status, scenes.cluster(status))["speed"]["plots"] if one["title"] == "Requests")
    assert [one["nothing"] for one in requests["values"]] == [False, True]


def test_the_footer_links_what_a_browser_can_open() -> None:
    links = re.findall(r'<a href="(/[^"]*)"', get(scenes.serving(), "/").text.split("<footer>")[1])
    assert "/status.json" in links
    assert [path for path in links if path != "/logs" and get(scenes.serving(), path).status_code >= 400] == []


def test_the_memory_tool_gives_the_size_of_the_memory_beside_the_number_of_its_rows() -> None:
    call: Any = SimpleNamespace(status=scenes.serving)
    found = asyncio.run(state.memory(call))
    told = json.loads(paging.page(found, 0, {}, ()))
    assert told["mem_total"] == scenes.serving()["memory"]["total"]
    assert told["total"] == len(found.items)


def test_pages_that_disagree_are_said_to() -> None:
    other = {**scenes.serving("10.0.0.10"), "sentence": "Starting: something else"}
    seen = scenes.cluster(scenes.serving(), scenes.box(other, "10.0.0.10"))
    assert "do not say the same" in get(scenes.serving(), "/", cluster=seen).text


def test_equal_rows_of_all_boxes_are_one_line_and_the_worst_come_first() -> None:
    found = rows(scenes.four(scenes.serving)["boxes"])
    assert [(one["level"], one["where"]) for one in found] == [("WARN", "all boxes"), ("ok", "all boxes")]


def test_an_unknown_stage_ticks_nothing_and_is_named() -> None:
    status = scenes.booting()
    status["stage"] = "self-test-failed"
    status["stages"] = [scenes.stage(key) for key in scenes.LABELS]
    drawn = stages(status)
    assert [one["state"] for one in drawn] == ["waiting"] * 12 + ["failed"]
    assert drawn[-1]["label"] == "self-test-failed"
    assert get(status, "/").status_code == 200


def test_a_stage_state_that_nobody_knows_is_not_a_tick() -> None:
    status = scenes.booting()
    status["stages"] = [scenes.stage(key, "finished") for key in scenes.LABELS]
    assert {one["state"] for one in stages(status)} == {"waiting"}


def test_a_late_stage_is_called_late_and_an_endless_one_never() -> None:
    status = scenes.booting()
    status["stages"] = [scenes.stage("prove", "running", elapsed_s=61.0, deadline_s=60.0)]
    assert stages(status)[0]["late"]
    assert stages(status)[0]["used"] == 100
    status["stages"] = [scenes.stage("prove", "running", elapsed_s=6100.0)]
    assert not stages(status)[0]["late"]
    assert stages(status)[0]["used"] is None


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (27917287424, "bytes", "26GiB (27917287424)"),
        (524288, "tokens", "524,288 tokens"),
        (64, "requests", "64 requests"),
        (0.88, "", "0.88"),
        (True, "", "on"),
        (None, "s", "–"),
        ("", "", "–"),
        ({"image": 16}, "", '{"image": 16}'),
        ("fp8_e4m3", "", "fp8_e4m3"),
    ],
)
def test_planned_values_as_people_read_them(value: Any, unit: str, text: str) -> None:
    assert shown(value, unit) == text


def test_what_somebody_chose_comes_first_in_the_plan() -> None:
    values = view(scenes.booting(), scenes.cluster(scenes.booting()))["plan"]["values"]
    assert values[0]["name"] == "MAX_NUM_SEQS"
    assert [one["chosen"] for one in values] == [True] + [False] * 4


def test_metrics_are_prometheus_text_and_their_parts_sum_to_the_total() -> None:
    from prometheus_client.parser import text_string_to_metric_families as parse

    families = {one.name: one for one in parse(get(scenes.serving(), "/metrics").text)}
    assert families["glm53_healthy"].samples[0].value == 1
    total = sum(one.value for one in families["glm53_memory_bytes"].samples)
    assert total == scenes.MEMINFO["MemTotal"]
    assert families["glm53_gpu_power_w"].samples[0].value == 61
    assert get(scenes.refused(), "/metrics").status_code == 200
