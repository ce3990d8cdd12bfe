"""`./glm53 plan`: a document with a published schema, the same hash as on the boxes, a page of 80 columns."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import jsonschema
import pytest

from core.refusal import Refusals
from core.registry import registry
from core.settings import resolve
from core.units import GIB
from entrypoint.sizing import BoxMemory
from entrypoint.sizing.document import differences, document
from entrypoint.sizing.text import plan_text
from entrypoint.stages.plans import sized_plan
from experimental.overlays import read_all
from launcher.dotenv import entries
from launcher.verbs import plan as verb

ROOT = Path(__file__).resolve().parents[3]
SCHEMA = json.loads((ROOT / "docs" / "plan.schema.json").read_text())
OVERLAY = {
    "name": "recoverssm", "summary": "one KDA state a request", "mounts": [{"source": "a", "target": "/b"}],
    "environment": {"X": "1"}, "verified": ["cpu"], "cost": "",
}  # fmt: skip


def plan(environ: dict[str, str], overlays: tuple[dict[str, Any], ...] = (OVERLAY,)) -> dict[str, Any]:
    return document(resolve(registry(), environ), [BoxMemory("one", round(121.6 * GIB))], overlays)


def command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The verb on a bare host: no site-packages, nothing of our environment."""
    return subprocess.run(
        [sys.executable, "-S", "glm53", "plan", *arguments],
        cwd=ROOT, env={"PATH": os.environ["PATH"], **environment}, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("tp", ["2", "3", "4", "6", "RING3", "RING4"])
def test_the_document_keeps_its_published_schema(tp: str) -> None:
    for more in (
        {},
        {"SPEC_METHOD": "mtp"},
        {"SPEC_METHOD": "none", "CUDA_GRAPHS": "0"},
        {"ENGINE_PROFILE": "lab-cpu"},
    ):
        jsonschema.validate(json.loads(json.dumps(plan({"TP": tp, **more}))), SCHEMA)


def test_the_schema_refuses_what_is_not_a_plan() -> None:
    broken = {**plan({}), "hash": "x"}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(broken, SCHEMA)


@pytest.mark.parametrize("tp", ["2", "3", "4", "6", "RING3", "RING4"])
def test_the_hash_is_the_one_the_boxes_compare(tp: str) -> None:
    settings = resolve(registry(), {"TP": tp, "GLM53_OVERLAYS": "recoverssm", "MAX_MODEL_LEN": "131072"})
    set_by_compose = {"GLM53_OVERLAY_RECOVERSSM": "1", "GLM53_OVERLAY_RECOVERSSM_DEPTH": ""}
    here = document(settings, [], [{**OVERLAY, "environment": set_by_compose}])

    def theirs(environ: dict[str, str]) -> str:
        boot = SimpleNamespace(
            tp=here["tp"], topology=here["topology"], layout=None, environ={"PATH": "/bin", **environ}
        )
        made, _ = sized_plan(cast(Any, boot), settings, [BoxMemory("box", round(121.6 * GIB), 100 * GIB)])
        return made.hash()

    assert here["hash"] == theirs(set_by_compose)
    assert here["hash"] != theirs({**set_by_compose, "GLM53_OVERLAY_RECOVERSSM_DEPTH": "3"}), "another box's own value"


@pytest.mark.parametrize("tp", ["2", "3", "4", "6"])
@pytest.mark.parametrize("profile", ["latency", "throughput"])
def test_the_page_is_80_columns_and_its_budget_sums(tp: str, profile: str) -> None:
    made = plan({"TP": tp, "PROFILE": profile, "EXTRA_ARGS": "--seed 1"})
    for line in plan_text(made).splitlines():
        assert len(line) <= 80, line
    for budget in made["budgets"]:
        assert sum(item["size"] for item in budget["items"]) + budget["left"] == budget["total"]


def test_every_knob_stands_there_with_its_source_and_secrets_do_not() -> None:
    made = plan({"API_KEY": "hunter2", "GROUP_SECRET": "tell nobody", "KV_CACHE_MEMORY": "20GiB"})
    listed = {knob["name"]: knob for knob in made["knobs"]}
    assert set(listed) == set(registry())
    assert listed["KV_CACHE_MEMORY"] == {**listed["KV_CACHE_MEMORY"], "value": 20 * GIB, "source": "environment"}
    assert listed["MAX_NUM_SEQS"]["source"] == "derived"
    text = plan_text(made) + json.dumps(made)
    assert "hunter2" not in text
    assert "tell nobody" not in text


def test_two_plans_are_told_apart_by_what_differs() -> None:
    assert differences(plan({}), plan({})) == []
    changes = {name: (mine, theirs) for name, mine, theirs in differences(plan({}), plan({"MAX_NUM_SEQS": "48"}))}
    assert changes["knob MAX_NUM_SEQS"] == ("64", "48")
    assert "hash" in changes
    assert "knob TP" not in changes


def test_the_verb_needs_no_packages_and_prints_json_that_diff_reads(tmp_path: Path) -> None:
    for name, tp in (("a", "4"), ("b", "RING4")):
        done = command("--tp", tp, "--json", "--stock")
        assert done.returncode == 0, done.stderr
        (tmp_path / name).write_text(done.stdout)
    jsonschema.validate(json.loads((tmp_path / "a").read_text()), SCHEMA)
    equal = command("--diff", str(tmp_path / "a"), str(tmp_path / "a"))
    assert (equal.returncode, equal.stdout) == (0, "The plans are equal.\n")
    differing = command("--diff", str(tmp_path / "a"), str(tmp_path / "b"))
    assert differing.returncode == 1
    assert "switch -> ring" in differing.stdout


def test_the_page_of_this_clone_is_80_columns_and_names_the_images_paths() -> None:
    """With the overlays that are on by default: their names, mounts and environment."""
    done = command("--set", "GLM47_FAIL_CLOSED=0", "--set", "GLM53_OVERLAY_MOE_DECODE_MAX_TOKENS=4")
    assert [line for line in done.stdout.splitlines() if len(line) > 80] == []
    assert str(ROOT) not in done.stdout
    engine = done.stdout.partition("ENVIRONMENT OF THE HEAD'S ENGINE")[2]
    for line in ("GLM47_FAIL_CLOSED=0", "GLM53_OVERLAY_MOE_DECODE_MAX_TOKENS=4", "PYTHONPATH=/opt/glm53-overlays"):
        assert f"  {line}\n" in engine


def test_boxes_come_from_their_facts(tmp_path: Path) -> None:
    facts = tmp_path / "box.json"
    facts.write_text(json.dumps({"hostname": "gx10-3", "memory": {"total": 110 * GIB, "available": 60 * GIB}}))
    done = command("--brief", "--box", str(facts))
    assert done.returncode == 0
    assert "110.0" in done.stdout
    assert "gx10-3: 60GiB available now" in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--tp", "5"], "TP:"),
        (["--set", "MAX_NUM_SEQ=3"], "MAX_NUM_SEQS"),
        (["--set", "VLLM_DENSE_FP8=0"], "GLM53_OVERLAY_DENSE_FP8"),
        (["--set", "KV_CACHE_MEMORY"], "NAME=VALUE"),
        (["--set", "=3"], "NAME=VALUE"),
        (["--diff", "model.toml", "model.toml"], "a file with a JSON object"),
        (["--diff", "docs/plan.schema.json", "docs/plan.schema.json"], "a plan of version"),
        (["--set", "KV_CACHE_MEMORY=60GiB"], "at most"),
        (["--box", "/nowhere.json"], "/nowhere.json"),
        (["--without", "nobody"], "--without"),
        (["--model", "/nowhere"], "/nowhere"),
        (["--diff", "/nowhere", "/nowhere"], "/nowhere"),
    ],
)
def test_a_mistake_is_one_line_and_exit_2(arguments: list[str], said: str) -> None:
    done = command(*arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_an_overlays_own_settings_are_accepted_and_its_switch_leaves_it_out() -> None:
    done = command("--json", "--set", "GLM53_OVERLAY_HEAD_GATE=0", "--set", "GLM53_OVERLAY_MOE_DECODE_MAX_TOKENS=4")
    assert done.returncode == 0, done.stderr
    on = {overlay["name"]: overlay for overlay in json.loads(done.stdout)["overlays"]}
    assert "head_gate" not in on
    assert on["moe_decode"]["environment"]["GLM53_OVERLAY_MOE_DECODE_MAX_TOKENS"] == "4"


def test_what_is_odd_in_dotenv_is_a_row() -> None:
    lines = entries(
        "TP=4\nHF_TOKEN=x\nGLM53_OVERLAY_TOPK=1\nMAX_NUM_SEQS=8\nMAX_NUM_SEQS=32\nKV_CACHE_MEMORY=26GiB\nMAX_MODEL_LEN=131072\n",
        {},
    )
    told = [row.seen for row in verb._judged({"MAX_NUM_SEQS": "16"}, lines, read_all(ROOT / "experimental"))]
    assert any("line 1: TP repeats the default" in text for text in told)
    assert any("MAX_NUM_SEQS is set again in line 5, 8 here and 32 there" in text for text in told)
    assert any("the shell's 16 wins over 32" in text for text in told)
    settings = verb._settings({}, lines, ())
    repeated = [row.seen for row in verb._repeated(settings, {}, lines, (), [])]
    assert len(repeated) == 2
    assert repeated[0].startswith("KV_CACHE_MEMORY is what the kit derives")
    assert repeated[1].startswith("MAX_NUM_SEQS is what the kit derives")
    with pytest.raises(Refusals, match="Set GROUP_NAME"):
        verb._judged({}, entries("MENTAT_GROUP=x\n", {}), ())


def checkpoint(folder: Path, config: dict[str, Any]) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


def test_what_lies_on_this_box_is_judged_as_up_judges_it(tmp_path: Path) -> None:
    """A Hugging Face cache too; the drafter too, unless nothing drafts; a missing folder is nobody's fault."""
    cache = tmp_path / "models--LibertAIDAI--GLM"
    big = checkpoint(cache / "snapshots" / "abc", {"text_config": {"num_attention_heads": 64}})
    small = checkpoint(tmp_path / "drafter", {"num_attention_heads": 32, "num_key_value_heads": 8})
    environ = {"TP": "3", "MODEL_HOST_DIR": str(cache), "DFLASH_HOST_DIR": str(small), "GLM53_OVERLAYS": "tp_pad"}
    rows = verb._checkpoints(resolve(registry(), environ), None)
    failed = {row.name: row for row in rows if row.level == "FAIL"}
    assert set(failed) == {"checkpoint", "drafter"}
    assert f"./glm53 pad {big} {cache}-tp3 --tp 3" in failed["checkpoint"].cure
    assert any(row.name == "checkpoint pack" and "corrupted" in row.seen for row in rows)
    rows = verb._checkpoints(resolve(registry(), {**environ, "SPEC_METHOD": "mtp"}), None)
    assert [row.name for row in rows if row.level == "FAIL"] == ["checkpoint"]
    (small / "model.safetensors").write_bytes(b"")
    rows = verb._checkpoints(resolve(registry(), {**environ, "MODEL_HOST_DIR": str(tmp_path / "nowhere")}), None)
    assert [(row.name, row.level) for row in rows] == [("DFLASH_HOST_DIR", "FAIL")]


def test_the_documents_budget_is_the_one_that_is_printed() -> None:
    """docs/sizing.md shows it line by line, without the bars."""
    made = document(resolve(registry(), {"TP": "4"}), [], [{**OVERLAY, "name": "dense_fp8"}])
    printed = plan_text(made).partition("MEMORY OF ONE BOX")[2].partition("  (shapes")[0]
    lines = [re.sub(r" +#* *", " ", line).split() for line in printed.splitlines()]
    shown = (ROOT / "docs/sizing.md").read_text().partition("MEMORY OF ONE BOX")[2].partition("```")[0]
    assert [line.split() for line in shown.splitlines()] == lines
