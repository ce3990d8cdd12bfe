"""What the image says before vLLM starts."""

import sys
from pathlib import Path

import pytest

from core.knob import by_name
from core.refusal import Refusal
from image.knobs import KNOBS
from image.startup import plugin_refusals, plugins, template_refusals, wants_plugin
from tests.main.kits.boxes import boxes

SWITCH = "VLLM_GLM53_CUDA_SPARSE_MLA"


def install(folder: Path, group: str, module: str = "sparse_mla") -> Path:
    info = folder / "sparse_mla-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: sparse-mla\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[console_scripts]\nx = y:z\n\n[{group}]\nsparse = {module}.a:register\n")
    (folder / "sparse_mla.py").write_text("raise SystemExit('imported')\n")
    return folder


def refused(environ: dict[str, str], found: dict[str, bool]) -> str:
    return " ".join(str(refusal) for refusal in plugin_refusals({SWITCH: "1", **environ}, found))


@pytest.mark.parametrize("value", ["", "0", "false", "False"])
def test_the_switch_off_asks_for_nothing(value: str) -> None:
    assert not wants_plugin({SWITCH: value})
    assert wants_plugin({SWITCH: "1"})


def test_a_plugin_is_found_by_the_engines_python_without_importing_it(tmp_path: Path) -> None:
    site = install(tmp_path, "vllm.general_plugins")
    assert plugins(sys.executable, str(site)) == {"sparse": True}
    assert plugins(sys.executable, "") == {}


def test_a_plugin_whose_module_is_gone(tmp_path: Path) -> None:
    site = install(tmp_path, "vllm.general_plugins", "not_there")
    assert plugins(sys.executable, str(site)) == {"sparse": False}


def test_another_packages_entry_points_are_no_plugin(tmp_path: Path) -> None:
    assert plugins(sys.executable, str(install(tmp_path, "pytest11"))) == {}


@pytest.mark.parametrize("python", ["/nowhere/python", "/bin/false"])
def test_a_python_that_does_not_answer_is_refused(python: str) -> None:
    with pytest.raises(Refusal, match="does not list its packages"):
        plugins(python, "")


def test_the_switch_needs_a_plugin_that_vllm_would_load() -> None:
    assert refused({}, {"sparse": True}) == ""
    assert "no vLLM plugin is installed" in refused({}, {})
    assert "the module of sparse cannot be found" in refused({}, {"sparse": False})
    assert "VLLM_PLUGINS leaves out sparse" in refused({"VLLM_PLUGINS": "other"}, {"sparse": True})
    assert refused({"VLLM_PLUGINS": "other,sparse"}, {"sparse": True}) == ""


def test_a_box_refuses_the_switch_at_once_and_names_the_missing_template_too(tmp_path: Path) -> None:
    """The real boot, up to the facts of this box."""
    given = {"ON_REFUSAL": "exit", "ENGINE_PYTHON": sys.executable, "CHAT_TEMPLATE": "/mine.jinja", SWITCH: "1"}
    with boxes(tmp_path, 1, tp=2, **given) as (box,):
        box.start()
        assert box.process is not None
        assert box.process.wait(60) == 2
    assert f"refused: {SWITCH}: seen set, and no vLLM plugin is installed" in box.log()
    assert "refused: CHAT_TEMPLATE: seen /mine.jinja is not a file" in box.log()


def test_a_template_that_is_not_there_is_refused_and_an_inline_one_is_not(tmp_path: Path) -> None:
    (refusal,) = template_refusals(str(tmp_path / "mine.jinja"))
    assert "mine.jinja is not a file" in str(refusal)
    (tmp_path / "mine.jinja").touch()
    for fine in ("", "{{ messages }}", str(tmp_path / "mine.jinja")):
        assert not list(template_refusals(fine))


def test_the_knobs_parse_their_defaults() -> None:
    for knob in by_name(KNOBS).values():
        if knob.default is not None:
            knob.parse(knob.default)
