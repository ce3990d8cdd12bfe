"""The page: what /status.json says, made readable; unknown paths, odd states and hostile text included."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import httpx
import pytest

from entrypoint.status.app import create_app
from entrypoint.status.context import Context
from entrypoint.status.view import shown, stages, view

LABELS = ("page", "knobs", "facts", "join", "elect", "preflight", "size", "agree", "fabric", "launch", "prove", "watch")


def stage(key: str, state: str = "waiting", **more: Any) -> dict[str, Any]:
    base = {"key": key, "label": key.title(), "state": state, "elapsed_s": None, "deadline_s": None}
    return {**base, "step": "", "detail": "", **more}


def booting() -> dict[str, Any]:
    """A head that waits for its engine; two of four boxes are well."""
    table = [stage(key, "done", elapsed_s=0.2) for key in LABELS[:9]]
    table.append(stage("launch", "done", elapsed_s=1.3))
    table.append(
        stage(
            "prove", "running", elapsed_s=130.0, deadline_s=3600.0, step="waiting for vLLM's API", detail="Loading 34%"
        )
    )
    table.append(stage("watch"))
    member = {"role": "worker", "stage": "prove", "age_s": 0.4, "verified": True, "note": ""}
    values = [
        ("KV_CACHE_MEMORY", 27917287424, "bytes", "derived", "26 GiB leave 2.1 GiB on the smallest box", ""),
        ("MAX_NUM_SEQS", 48, "requests", ".env", "Requests decoding at once", "reported: 64 with RecoverSSM"),
        ("CUDA_GRAPHS", True, "", "default", "0 runs without CUDA graphs", ""),
        ("MAX_MODEL_LEN", 524288, "tokens", "derived", "", ""),
        ("LIMIT_MM", {"image": 16, "video": 0}, "", "default", "The most images and videos of one prompt.", ""),
        ("CHAT_TEMPLATE", None, "", "default", "", ""),
    ]
    names = ("name", "value", "unit", "source", "why", "measured")
    return {
        "service": {
            "name": "glm53",
            "served_name": "glm53",
            "hostname": "spark-a",
            "version": "0.1.0",
            "profile": "gb10",
        },
        "box": {"lan": "10.0.0.9", "role": "head", "rank": 0, "instance": "ab12", "n": 2, "state": "running"},
        "stage": "prove",
        "stages": table,
        "healthy": False,
        "sentence": "Prove it: waiting for vLLM's API",
        "refusals": [],
        "election": {
            "line": "election: head 10.0.0.9 of 10.0.0.9 10.0.0.10 10.0.0.11 10.0.0.12",
            "head": "10.0.0.9",
            "candidates": ["10.0.0.9", "10.0.0.10"],
        },
        "members": [
            {**member, "lan": "10.0.0.12", "hostname": "", "state": "unknown", "rank": None, "age_s": None}
            | {"verified": False, "note": "the nonce came back from another address"},
            {
                **member,
                "lan": "10.0.0.10",
                "hostname": "spark-b",
                "state": "running",
                "rank": 1,
                "url": "http://10.0.0.10:8082",
            },
            {
                **member,
                "lan": "10.0.0.9",
                "hostname": "spark-a",
                "state": "running",
                "rank": 0,
                "role": "head",
                "age_s": 0.0,
            },
            {**member, "lan": "10.0.0.11", "hostname": "spark-c", "state": "stopping", "rank": 2, "age_s": 12.0},
        ],
        "generation": {"id": "5f0c9e1d22aa47b3", "epoch": 7, "master_port": 20014},
        "plan": {"hash": "0123456789abcdef", "values": [dict(zip(names, value, strict=True)) for value in values]},
        "rows": [
            {"name": "kernel", "level": "ok", "seen": "6.17.0-1032", "expected": "", "cure": "", "link": ""},
            {
                "name": "swap",
                "level": "WARN",
                "seen": "1.2GiB used",
                "expected": "none",
                "cure": "sudo swapoff -a",
                "link": "",
            },
        ],
        "selftest": {"verdict": "pending", "lines": []},
        "engine": {"pid": 4242, "running": True, "exit": None, "log_tail": ["INFO loading", "INFO 34%"]},
        "url": "http://10.0.0.9:8002/v1",
    }


def serving() -> dict[str, Any]:
    status = booting()
    status["stages"] = [stage(key, "done", elapsed_s=1.0) for key in LABELS[:-1]]
    status["stages"].append(stage("watch", "running", elapsed_s=7300.0, step="serving"))
    return {
        **status,
        "stage": "watch",
        "healthy": True,
        "sentence": "serving glm53 on 4 boxes",
        "selftest": {"verdict": "passed", "lines": ["capital of France: Paris", "12 + 7: 19", "opposite of hot: cold"]},
    }


def refused() -> dict[str, Any]:
    status = booting()
    status["stages"] = [
        stage("page", "done", elapsed_s=0.3),
        stage("knobs", "failed", elapsed_s=0.1, step="TP"),
        *(stage(key) for key in LABELS[2:]),
    ]
    cure = "Set TP in compose/.env, or leave it unset."
    one = {"setting": "TP", "seen": "'<b>four</b>'", "expected": "one of 2, 3, 4, 6, RING3, RING4", "cure": cure}
    empty: dict[str, Any] = {"members": [], "election": None, "generation": None, "plan": None, "rows": []}
    return {
        **status,
        **empty,
        "stage": "knobs",
        "refusals": [one],
        "sentence": "refused: TP",
        "box": {**status["box"], "rank": None},
    }


class Board:
    def __init__(self, status: dict[str, Any]) -> None:
        self.told = status

    def status(self) -> dict[str, Any]:
        return self.told


def get(status: dict[str, Any], path: str, method: str = "GET") -> httpx.Response:
    def member(nonce: str, dialled: str) -> bytes:
        return json.dumps({"nonce": nonce, "dialled": dialled}).encode()

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(create_app(Context(Board(status), member)))
        async with httpx.AsyncClient(transport=transport, base_url="http://10.0.0.9:8082") as client:
            return await client.request(method, path)

    return asyncio.run(ask())


def ticks(html: str) -> list[str]:
    """The state of every stage as drawn."""
    return re.findall(r'<span class="mark" aria-label="(\w+)">', html)


def test_healthz_is_200_only_when_healthy() -> None:
    assert get(serving(), "/healthz").status_code == 200
    answer = get(booting(), "/healthz")
    assert answer.status_code == 503
    assert answer.json() == {"healthy": False, "stage": "prove", "sentence": "Prove it: waiting for vLLM's API"}


def test_status_json_is_the_board_s_word() -> None:
    assert get(booting(), "/status.json").json() == booting()


def test_member_json_needs_a_nonce_and_names_the_address_dialled() -> None:
    nonce = "0123456789abcdef" * 2
    assert get(booting(), f"/member.json?nonce={nonce}").json() == {"nonce": nonce, "dialled": "10.0.0.9"}
    for bad in ("", "?nonce=", "?nonce=abc", f"?nonce={nonce.upper()}", f"?nonce={nonce}0", f"?nonce={nonce}%0a"):
        assert get(booting(), f"/member.json{bad}").status_code == 400


@pytest.mark.parametrize("path", ["/nothing", "/status", "/../etc/passwd", "/static/x.css"])
def test_unknown_paths_are_404(path: str) -> None:
    assert get(booting(), path).status_code == 404


def test_nothing_can_be_changed_through_the_page() -> None:
    assert get(booting(), "/", "POST").status_code == 405
    assert get(booting(), "/", "HEAD").status_code == 200


def test_the_page_shows_the_stage_its_step_and_its_deadline() -> None:
    html = get(booting(), "/").text
    assert ticks(html) == ["done"] * 10 + ["running", "waiting"]
    assert "waiting for vLLM&#39;s API" in html
    assert "2m10s of 1h00m" in html
    assert "Loading 34%" in html
    assert '<meta http-equiv="refresh" content="2">' in html


def test_the_page_needs_no_script_and_nothing_from_elsewhere() -> None:
    answer = get(serving(), "/")
    assert "<script" not in answer.text
    assert not re.findall(r'(?:src|href)="(?:https?:)?//(?!10\.0\.0\.)', answer.text)
    assert "default-src 'none'" in answer.headers["content-security-policy"]


def test_a_serving_box_says_how_to_use_it() -> None:
    html = get(serving(), "/").text
    assert "http://10.0.0.9:8002/v1" in html
    assert "Serving" in html
    assert '<meta http-equiv="refresh" content="5">' in html
    assert "refresh" not in get(serving(), "/?hold=1").text.split("</head>")[0]


def test_a_refusal_is_shown_whole_and_escaped() -> None:
    html = get(refused(), "/").text
    assert "Refused: TP" in html
    assert "&lt;b&gt;four&lt;/b&gt;" in html
    assert "Set TP in compose/.env" in html
    assert ticks(html) == ["done", "failed"] + ["waiting"] * 10


def test_members_come_by_rank_and_a_stranger_is_no_member() -> None:
    rows = view(booting())["members"]
    assert [row["lan"] for row in rows] == ["10.0.0.9", "10.0.0.10", "10.0.0.11", "10.0.0.12"]
    assert [row["mood"] for row in rows] == ["good", "good", "busy", "bad"]
    assert "not verified" in get(booting(), "/").text


def test_an_unknown_stage_ticks_nothing_and_is_named() -> None:
    status = booting()
    status["stage"] = "self-test-failed"
    status["stages"] = [stage(key) for key in LABELS]
    drawn = stages(status)
    assert [one["state"] for one in drawn] == ["waiting"] * 12 + ["failed"]
    assert drawn[-1]["label"] == "self-test-failed"


def test_a_stage_state_that_nobody_knows_is_not_a_tick() -> None:
    status = booting()
    status["stages"] = [stage(key, "finished") for key in LABELS]
    assert {one["state"] for one in stages(status)} == {"waiting"}


def test_a_late_stage_is_called_late_and_an_endless_one_never() -> None:
    status = {**booting(), "stages": [stage("prove", "running", elapsed_s=61.0, deadline_s=60.0)]}
    assert stages(status)[0]["late"]
    assert stages(status)[0]["used"] == 100
    status["stages"] = [stage("prove", "running", elapsed_s=6100.0)]
    assert not stages(status)[0]["late"]
    assert stages(status)[0]["endless"]


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
    values = view(booting())["plan"]["values"]
    assert values[0]["name"] == "MAX_NUM_SEQS"
    assert [one["chosen"] for one in values] == [True] + [False] * 5
