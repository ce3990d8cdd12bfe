"""Rows about what shapes answers: the template that vLLM gets, the checkpoint's sampling, a knob of others.

The boot, `./glm53 doctor` on the host and doctor in the container come to the same rows.
"""

import json
from pathlib import Path

import pytest

from core.registry import registry
from core.row import Row
from core.settings import resolve
from entrypoint.boot import Boot
from entrypoint.stages import rails
from launcher.paths import ROOT
from launcher.verbs import doctor
from preflight.checks import Scene, Wanted, preflight
from preflight.checks.answers import closes_empty_think
from preflight.checks.scene import anchor
from preflight.facts.survey import survey

NAMES = ("attention plugin", "chat template", "generation settings")
CLOSING = "{% if add_generation_prompt %}<|assistant|>{{ '<think></think>' if off else '<think>' }}{% endif %}"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A whole checkpoint whose own template closes an empty think block, without generation settings."""
    folder = tmp_path / "glm"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"x")
    (folder / "chat_template.jinja").write_text(CLOSING)
    return folder


def told(rows: tuple[Row, ...]) -> list[Row]:
    return [row for row in rows if row.name in NAMES]


def of_the_boot(**knobs: str) -> list[Row]:
    """As stage 6 of the boot makes them."""
    settings = resolve(registry(), knobs)
    return told(preflight(Scene(survey(), rails.wanted(Boot({}, tp=4), settings))))


def of_doctor(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], **knobs: str) -> list[Row]:
    with monkeypatch.context() as shell:
        shell.setattr(doctor, "INSIDE", Path(knobs.get("MODEL_DIR", "/nowhere")))  # there in the container only
        for name, value in knobs.items():
            shell.setenv(name, value)
        doctor.run(["--json"])
    return told(tuple(Row(**row) for row in json.loads(capsys.readouterr().out)["rows"]))


def test_doctor_on_the_host_shows_the_rows_of_the_boot(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = {"VLLM_GLM53_MOE_INPUT_SCALE": "1"}
    inside = of_the_boot(MODEL_DIR=str(model), CHAT_TEMPLATE=str(model / "chat_template.jinja"), **given)
    assert [(row.name, row.level) for row in inside] == [
        ("generation settings", "WARN"),
        ("chat template", "WARN"),
        ("chat template", "WARN"),
        ("attention plugin", "WARN"),
    ]
    # In compose/.env the template has the path that it has in the container.
    on_the_host = {"MODEL_HOST_DIR": str(model), "CHAT_TEMPLATE": "/models/target/chat_template.jinja", **given}
    assert of_doctor(monkeypatch, capsys, **on_the_host) == inside


def test_doctor_in_the_container_too(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    knobs = {"MODEL_DIR": str(model), "CHAT_TEMPLATE": str(model / "chat_template.jinja")}
    assert of_doctor(monkeypatch, capsys, **knobs) == of_the_boot(**knobs)


def test_doctor_looks_into_a_hugging_face_cache_as_the_boot_will(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cache = tmp_path / "models--nvidia--GLM-5.3-Flash-NVFP4"
    (cache / "snapshots").mkdir(parents=True)
    (model / "generation_config.json").write_text("{}")
    model.rename(cache / "snapshots/abc")
    found = of_doctor(
        monkeypatch,
        capsys,
        MODEL_HOST_DIR=str(cache),
        CHAT_TEMPLATE="/models/target/snapshots/abc/chat_template.jinja",
    )
    assert [(row.name, row.level) for row in found] == [
        ("chat template", "WARN"),
        ("chat template", "WARN"),
        ("generation settings", "ok"),
        ("attention plugin", "ok"),
    ]


def test_the_images_own_template_and_a_complete_checkpoint_say_nothing(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (model / "generation_config.json").write_text("{}")
    for template in ("", "/opt/glm53/image/chat-template.jinja"):
        found = of_doctor(monkeypatch, capsys, MODEL_HOST_DIR=str(model), CHAT_TEMPLATE=template)
        assert {row.level for row in found} == {"ok"}
    assert {row.level for row in of_the_boot(MODEL_DIR=str(model))} == {"ok"}


def test_a_template_that_only_the_container_has_is_said_to_be_unseen(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = of_doctor(monkeypatch, capsys, MODEL_HOST_DIR=str(model), CHAT_TEMPLATE="/mine/x.jinja")
    (row,) = [row for row in found if row.name == "chat template"]
    assert (row.level, row.seen) == ("info", "/mine/x.jinja is not on the host; the boot looks at it")


def looked(wanted: Wanted) -> list[str]:
    return [row.seen for row in preflight(Scene(survey(), wanted)) if row.name == "chat template"]


def test_a_template_given_as_text_is_judged_and_not_taken_for_a_path() -> None:
    """vLLM takes the template itself in place of a path; as a path it is too long to be asked for."""
    text = "{# " + "long " * 400 + "#}"
    assert looked(Wanted(template=text)) == ["nothing wrong"]
    assert looked(Wanted(template=text + CLOSING)) == ["the template in CHAT_TEMPLATE closes an empty think block"]


def test_the_checkpoints_template_is_known_behind_a_link_and_as_a_copy(tmp_path: Path) -> None:
    """As Hugging Face's cache keeps it: the file is a link to a blob elsewhere."""
    model, blob, copy = tmp_path / "snapshot", tmp_path / "blob", tmp_path / "copy.jinja"
    model.mkdir()
    blob.write_text("{{ messages }}")
    copy.write_text("{{ messages }}")
    (model / "chat_template.jinja").symlink_to(blob)
    for template in (model / "chat_template.jinja", copy):
        assert looked(Wanted(model=str(model), template=str(template))) == [f"{template} is the checkpoint's own"]


def test_warnings_lead_to_a_section(model: Path) -> None:
    wanted = Wanted(model=str(model), template=str(model / "chat_template.jinja"), input_scale="1")
    text = (ROOT / "docs/troubleshooting.md").read_text()
    headings = {anchor(line[3:]) for line in text.splitlines() if line.startswith("## ")}
    assert {row.link.partition("#")[2] for row in told(preflight(Scene(survey(), wanted)))} <= headings


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
