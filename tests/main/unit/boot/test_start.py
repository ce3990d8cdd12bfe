"""Reading the knobs so that a box can always say what it refuses, and what boxes compare."""

from __future__ import annotations

import asyncio
import json

import pytest

from core.registry import registry
from core.settings import lenient
from entrypoint.__main__ import STAGES
from entrypoint.board import Board
from entrypoint.boot import Boot
from entrypoint.stages import start


def read(**environ: str) -> tuple[dict[str, str], list[str]]:
    """(what boxes compare, settings refused)."""
    settings, refusals = lenient(registry(), environ)
    return start.comparable(settings), [one.setting for one in refusals]


def test_a_bad_knob_is_refused_and_the_others_are_still_read() -> None:
    settings, refusals = lenient(registry(), {"TP": "five", "API_PORT": "9", "MAX_NUM_SEQS": "x"})
    assert [one.setting for one in refusals] == ["TP", "MAX_NUM_SEQS"]
    assert settings["API_PORT"] == 9
    assert settings["TP"] == "4"


def test_empty_means_unset() -> None:
    settings, refusals = lenient(registry(), {"TP": "", "HEAD_HOST": ""})
    assert not refusals
    assert (settings["TP"], settings["HEAD_HOST"], settings.is_set("TP")) == ("4", None, False)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"TP": ".env"}'])
def test_provenance_from_the_launcher_is_shown_or_ignored_never_fatal(text: str) -> None:
    environ = {"TP": "2", "GLM53_SOURCES": text}
    settings, _ = lenient(registry(), environ, start.sources(environ))
    assert settings.table["TP"].source == (".env" if "TP" in text else "environment")


def test_boxes_compare_values_not_spellings() -> None:
    assert read(KV_CACHE_MEMORY="26GiB")[0] == read(KV_CACHE_MEMORY="27917287424")[0]
    assert read(LIMIT_MM='{"image": 4}')[0] == read(LIMIT_MM='{ "image":4 }')[0]
    assert read(KV_CACHE_MEMORY="26GiB")[0] != read(KV_CACHE_MEMORY="8GiB")[0]


def test_secrets_and_a_boxs_own_settings_are_not_shown_to_the_others() -> None:
    shown, _ = read(GROUP_SECRET="s3cret", API_KEY="k3y", PEERS="a,b", MODEL_DIR="/m")
    assert "s3cret" not in json.dumps(shown)
    assert not {"GROUP_SECRET", "API_KEY", "PEERS", "MODEL_DIR"} & set(shown)


def test_port_and_address_of_the_page_are_read_before_all_others() -> None:
    assert start.early_settings({}) == {"STATUS_PORT": "8082", "STATUS_BIND": "0.0.0.0"}
    assert start.early_settings({"STATUS_PORT": "9", "STATUS_BIND": "127.0.0.1"})["STATUS_PORT"] == "9"
    assert start.early_settings({"STATUS_PORT": "x", "STATUS_BIND": "nowhere"}) == start.early_settings({})


def test_the_page_has_data_from_the_first_moment() -> None:
    async def status(**environ: str) -> dict[str, object]:
        boot = Boot(environ)
        boot.board = Board(STAGES, boot)
        boot.board.begin("page")
        return boot.board.status()

    shown = asyncio.run(status(STATUS_PORT="x", TP="y"))
    assert json.loads(json.dumps(shown)) == shown
    assert shown["healthy"] is False
    assert str(shown["sentence"]).endswith("at “Page up”")
    assert [stage["key"] for stage in shown["stages"]] == [stage.key for stage in STAGES]  # type: ignore[attr-defined]


def test_a_stage_that_begins_anew_unticks_what_comes_after_it() -> None:
    async def states() -> list[str]:
        boot = Boot({})
        boot.board = board = Board(STAGES, boot)
        for stage in STAGES:
            board.begin(stage.key)
            board.end()
        board.begin("join")
        return [progress.state for progress in board.progress]

    assert asyncio.run(states()) == ["done"] * 3 + ["running"] + ["waiting"] * 8
