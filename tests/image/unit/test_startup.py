"""What the image says before vLLM starts."""

import sys
from pathlib import Path

import pytest

from core.knob import by_name
from core.refusal import Refusal
from image.knobs import KNOBS
from image.startup import closes_empty_think, plugin_refusals, plugins, rows, template_refusals, wants_plugin
from launcher.paths import ROOT
from preflight.checks.scene import anchor
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


def test_a_complete_checkpoint_and_the_images_template_say_nothing(tmp_path: Path) -> None:
    (tmp_path / "generation_config.json").write_text("{}")
    assert list(rows({}, tmp_path, ROOT / "image" / "chat-template.jinja")) == []


CLOSING = "{% if add_generation_prompt %}<|assistant|>{{ '<think></think>' if off else '<think>' }}{% endif %}"


def test_warnings_lead_to_a_section(tmp_path: Path) -> None:
    template = tmp_path / "chat_template.jinja"
    template.write_text(CLOSING)
    found = list(rows({"VLLM_GLM53_MOE_INPUT_SCALE": "1"}, tmp_path, template))
    assert [(row.name, row.level) for row in found] == [
        ("attention plugin", "WARN"),
        ("chat template", "WARN"),
        ("chat template", "WARN"),
        ("generation settings", "WARN"),
    ]
    text = (ROOT / "docs" / "troubleshooting.md").read_text()
    headings = {anchor(line[3:]) for line in text.splitlines() if line.startswith("## ")}
    assert {row.link.partition("#")[2] for row in found} <= headings


def test_the_checkpoints_template_is_known_behind_a_link_and_as_a_copy(tmp_path: Path) -> None:
    """As Hugging Face's cache keeps it: the file is a link to a blob elsewhere."""
    model, blob, copy = tmp_path / "snapshot", tmp_path / "blob", tmp_path / "copy.jinja"
    model.mkdir()
    blob.write_text("{{ messages }}")
    copy.write_text("{{ messages }}")
    (model / "chat_template.jinja").symlink_to(blob)
    for template in (model / "chat_template.jinja", copy):
        assert ["own" in row.seen for row in rows({}, model, template)] == [True, False]


@pytest.mark.parametrize(
    ("text", "closes"),
    [
        ("{% if add_generation_prompt %}<|assistant|>\n<think>\n</think>\n{% endif %}", True),
        ("{% if add_generation_prompt %}{{ '<|assistant|><think>\\n</think>' }}{% endif %}", True),
        ("{% if add_generation_prompt %}<|assistant|><think>{% endif %}", False),
        ("history: <think></think>{% if add_generation_prompt %}<|assistant|><think>{% endif %}", False),
        ("no generation prompt at all", False),
    ],
)
def test_an_empty_think_block_at_the_end_of_the_prompt(text: str, closes: bool) -> None:
    assert closes_empty_think(text) is closes


def test_the_knobs_parse_their_defaults() -> None:
    for knob in by_name(KNOBS).values():
        if knob.default is not None:
            knob.parse(knob.default)
