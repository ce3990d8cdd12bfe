"""`lab up --padded` without starting a box: the model, its overlay, and what is refused."""

import json
from pathlib import Path

import pytest

import model as facts
from core.refusal import Refusal
from core.registry import registry
from core.settings import resolve
from entrypoint.sizing import size
from entrypoint.sizing.padding import unpadded
from lab import padded
from lab.model import ODD, tiny
from launcher.verbs import lab as verb


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GLM53_CACHE", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("tp", [3, 6])
def test_the_model_is_refused_as_it_is_and_taken_once_padded(tp: int) -> None:
    plain, made = tiny(ODD), padded.model(tp)
    assert unpadded(facts.read_json(plain / "config.json") or {}, str(tp), plain) is not None
    config = json.loads((made / "config.json").read_text())
    assert unpadded(config, str(tp), made) is None
    assert config["tp_pad_orig"]["tp"] == tp
    assert padded.model(tp) == made, "made once"


def test_the_overlay_lies_where_vllm_looks_as_in_a_container() -> None:
    folder = padded.mounted(("tp_pad",))
    assert (folder / "experimental/tp_pad/hook.py").is_file()
    assert (folder / "experimental/plugin.py").is_file()
    assert list(folder.glob("*.dist-info/entry_points.txt"))
    assert not (folder / "experimental/head_gate").exists()
    assert padded.mounted(("tp_pad",)) == folder


def test_the_options_knobs_and_the_users_on_top() -> None:
    options = verb._parser().parse_args(["up", "--boxes", "3", "--padded", "--set", "SELF_TEST=0"])
    count, knobs = verb._settings(options)
    assert (count, knobs["GLM53_OVERLAYS"], knobs["SELF_TEST"]) == (3, "tp_pad", "0")
    assert str(padded.model(3)) == knobs["MODEL_DIR"]


@pytest.mark.parametrize("more", [["--boxes", "2"], ["--boxes", "4"], ["--boxes", "3", "--provider", "docker"]])
def test_what_needs_no_padding_or_cannot_have_it_is_refused(more: list[str]) -> None:
    with pytest.raises(Refusal, match="--padded"):
        verb._settings(verb._parser().parse_args(["up", "--padded", *more]))


def test_the_padded_models_pool_is_predicted_from_the_padded_heads() -> None:
    environ = {"ENGINE_PROFILE": "lab-cpu", "TP": "3", "SPEC_METHOD": "none"}
    settings = resolve(registry(), environ)
    plain, grown = (size([], settings, names, "lab-cpu").pool for names in ((), ("tp_pad",)))
    assert plain is not None
    assert grown is not None
    assert grown.bytes_per_block * 4 == plain.bytes_per_block * 3  # 9 heads of 3 ranks beside 12
