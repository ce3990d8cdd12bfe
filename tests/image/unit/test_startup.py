"""What the image says before vLLM starts."""

from pathlib import Path

import pytest

from core.knob import by_name
from image.knobs import KNOBS
from image.startup import closes_empty_think, plugins, refusals, rows
from launcher.paths import ROOT

SWITCH = "VLLM_GLM53_CUDA_SPARSE_MLA"


def install(folder: Path, group: str) -> Path:
    info = folder / "sparse_mla-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "entry_points.txt").write_text(f"[console_scripts]\nx = y:z\n\n[{group}]\nsparse = sparse_mla:register\n")
    return folder


def test_the_switch_needs_a_plugin(tmp_path: Path) -> None:
    (refusal,) = refusals({SWITCH: "1"}, [tmp_path])
    assert "no vLLM plugin is installed" in str(refusal)
    assert "ext.yaml" in refusal.cure


@pytest.mark.parametrize("value", ["", "0", "false"])
def test_the_switch_off_asks_for_nothing(value: str, tmp_path: Path) -> None:
    assert refusals({SWITCH: value}, [tmp_path]) == ()


def test_a_plugin_is_found_without_importing_it(tmp_path: Path) -> None:
    site = install(tmp_path, "vllm.general_plugins")
    assert plugins([site]) == {"sparse": "sparse_mla:register"}
    assert refusals({SWITCH: "1"}, [site]) == ()


def test_another_packages_entry_points_are_no_plugin(tmp_path: Path) -> None:
    assert refusals({SWITCH: "1"}, [install(tmp_path, "pytest11")]) != ()


def test_a_complete_checkpoint_and_the_images_template_say_nothing(tmp_path: Path) -> None:
    (tmp_path / "generation_config.json").write_text("{}")
    assert list(rows({}, tmp_path, ROOT / "image" / "chat-template.jinja")) == []


def test_warnings(tmp_path: Path) -> None:
    template = tmp_path / "chat_template.jinja"
    template.write_text(
        "{% if add_generation_prompt %}<|assistant|>{{ '<think></think>' if off else '<think>' }}{% endif %}"
    )
    found = list(rows({"VLLM_GLM53_MOE_INPUT_SCALE": "1"}, tmp_path, template))
    assert [(row.name, row.level) for row in found] == [
        ("VLLM_GLM53_MOE_INPUT_SCALE", "WARN"),
        ("CHAT_TEMPLATE", "WARN"),
        ("CHAT_TEMPLATE", "WARN"),
        ("generation_config.json", "WARN"),
    ]


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
