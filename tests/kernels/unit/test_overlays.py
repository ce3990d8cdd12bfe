"""overlay.toml, the order, needs and excludes, the snapshot tag, and fit by hooked functions."""

import re
from pathlib import Path
from typing import Any

import pytest

from core.refusal import Refusal
from experimental.fit import digest, misfits
from experimental.overlays import PREFIX, ROOM, chosen, misset, read, read_all, select, snapshot_tag
from experimental.plugin import OverlayDoesNotFit, OverlayMisset, check, judge, switched_on

GOOD = """
name = "sample"
summary = "a sample"
order = 5
default = true
switch = "GLM53_OVERLAY_SAMPLE"
changes_weights = true
verified = ["cpu"]
cost = "none"
[[setting]]
name = "GLM53_OVERLAY_SAMPLE_LEVEL"
default = "3"
accepts = "1-4"
why = "how much"
[[mount]]
source = "experimental/sample"
target = "/opt/sample"
[[hook]]
file = "vllm/a.py"
function = "A.run"
digests = ["DIGEST"]
"""


def overlay(tmp_path: Path, text: str = GOOD, name: str = "sample") -> Path:
    folder = tmp_path / "experimental" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "overlay.toml").write_text(text)
    (folder / "kernel.py").write_text("x = 1\n")
    return folder


def test_a_good_overlay_is_read(tmp_path: Path) -> None:
    made = read(overlay(tmp_path))
    assert (made.name, made.switch, made.mounts[0].target) == ("sample", "GLM53_OVERLAY_SAMPLE", "/opt/sample")
    assert made.environment == (("GLM53_OVERLAY_SAMPLE_LEVEL", "3"),)


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ('name = "sample"', 'name = "other"', "name"),
        ("order = 5", 'order = "5"', "order"),
        ("order = 5", "order = 5\ncolour = 1", "colour"),
        ('summary = "a sample"', "", "summary"),
        ("order = 5", "order = true", "order"),
        ("order = 5", "order = 5\nneeds = [5]", "needs"),
        ("GLM53_OVERLAY_SAMPLE_LEVEL", "LEVEL", "setting"),
        ("GLM53_OVERLAY_SAMPLE_LEVEL", "GLM53_OVERLAY_OTHER_LEVEL", "setting"),
        ('accepts = "1-4"', 'accepts = "some"', "setting"),
        ('default = "3"', 'default = "5"', "setting.*from 1 to 4"),
        ('default = "3"', "default = 3", "setting"),
        ("[[mount]]", "[[hook]]", "mount"),
        ('["DIGEST"]', '"DIGEST"', "hook"),
        ('["DIGEST"]', "[5]", "hook"),
        ('function = "A.run"', "", "hook"),
        ('switch = "GLM53_OVERLAY_SAMPLE"', 'switch = "SAMPLE"', "switch"),
        ('source = "experimental/sample"', 'source = "experimental/none"', "mount"),
        ('["cpu"]', '["moon"]', "verified"),
        ("order = 5", "order = ", "overlay.toml"),
    ],
)
def test_a_bad_overlay_is_refused_by_key(tmp_path: Path, old: str, new: str, named: str) -> None:
    with pytest.raises(Refusal, match=named):
        read(overlay(tmp_path, GOOD.replace(old, new)))


@pytest.mark.parametrize("table", ["mount", "hook", "setting"])
def test_a_list_of_something_else_is_refused(tmp_path: Path, table: str) -> None:
    text = GOOD.partition("[[setting]]")[0] + f"{table} = [5]\n" + ("" if table == "mount" else "mount = []\n")
    with pytest.raises(Refusal, match=table):
        read(overlay(tmp_path, text))


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    folder = overlay(tmp_path)
    (folder / "overlay.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(Refusal, match=r"sample/overlay\.toml.*a TOML file"):
        read(folder)
    (folder / "overlay.toml").unlink()
    (folder / "overlay.toml").mkdir()
    with pytest.raises(Refusal, match=r"sample/overlay\.toml"):
        read_all(folder.parent)


def test_two_overlays_do_not_mount_over_each_other(tmp_path: Path) -> None:
    overlay(tmp_path)
    overlay(tmp_path, GOOD.replace('name = "sample"', 'name = "other"').replace("SAMPLE", "OTHER"), "other")
    with pytest.raises(Refusal, match=r"sample/overlay\.toml: mount.*other is mounted"):
        read_all(tmp_path / "experimental")


def test_order_needs_and_excludes(tmp_path: Path) -> None:
    overlay(tmp_path)
    other = (
        GOOD.replace("sample", "late").replace("SAMPLE", "LATE").replace("order = 5", "order = 9\nneeds = ['sample']")
    )
    overlay(tmp_path, other, "late")
    both = read_all(tmp_path / "experimental")
    assert [item.name for item in both] == ["sample", "late"]
    assert [item.name for item in select(both, without=["late"])] == ["sample"]
    with pytest.raises(Refusal, match=r"late.*--without late"):
        select(both, without=["sample"])
    with pytest.raises(Refusal, match="lat"):
        select(both, without=["lat"])
    overlay(tmp_path, other.replace("order = 9", "order = 1"), "late")
    with pytest.raises(Refusal, match="order"):
        read_all(tmp_path / "experimental")


def test_the_snapshot_tag_follows_what_changes_weights(tmp_path: Path) -> None:
    folder = overlay(tmp_path)
    room = tmp_path / "experimental"

    def tag(environment: dict[str, str] | None = None) -> str:
        return snapshot_tag(read_all(room), environment or {}, room)

    first = tag()
    assert first == tag({"UNRELATED": "1"}) == tag({"GLM53_OVERLAY_SAMPLE_LEVEL": "3"})
    assert first != tag({"GLM53_OVERLAY_SAMPLE_LEVEL": "4"})
    assert first == tag({"GLM53_OVERLAY_SAMPLE_LEVEL": "", "GLM53_OVERLAY_SAMPLE": ""}), "as its compose file has it"
    assert tag({"GLM53_OVERLAY_SAMPLE": "0"}) == snapshot_tag((), {}, room), "off is as good as left out"
    assert first != tag({"GLM53_OVERLAY_SAMPLE": "0"})
    (folder / "kernel.py").write_text("x = 2\n")
    assert first != tag()
    overlay(tmp_path, GOOD.replace("changes_weights = true", "changes_weights = false"))
    assert snapshot_tag(read_all(room), {}, room) == snapshot_tag((), {}, room)


def test_a_digest_ignores_words_and_sees_code() -> None:
    source = 'class A:\n    def run(self, a=1):\n        """Doc."""\n        return a + 1\n'
    same = '# x\nclass A:\n\n    def run(self, a=1):\n        """Other."""\n        # why\n        return (a + 1)\n'
    known = digest(source, "A.run")
    assert known == digest(same, "A.run")
    assert known != digest(source.replace("a=1", "a=2"), "A.run")
    assert known != digest(source.replace("a + 1", "a + 2"), "A.run")
    assert digest(source, "A.walk") is None
    assert digest(source + source, "A.run") is None


def test_an_overlay_that_does_not_fit_is_refused_by_name(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "vllm").mkdir(parents=True)
    data = {"name": "sample", "hook": [{"file": "vllm/a.py", "function": "A.run", "digests": ["0" * 12]}]}
    with pytest.raises(OverlayDoesNotFit, match=r"sample.*absent.*--without sample"):
        check(data, tree)
    (tree / "vllm" / "a.py").write_text("class A:\n    def run(self):\n        pass\n")
    with pytest.raises(OverlayDoesNotFit, match=r"sample.*unknown"):
        check(data, tree)
    (found,) = misfits(tree, (("vllm/a.py", "A.run", ()),))
    data["hook"][0]["digests"] = [found.seen]  # type: ignore[index]
    check(data, tree)


def test_what_is_on_follows_the_command_line_then_the_switch_then_the_default(tmp_path: Path) -> None:
    overlay(tmp_path)
    late = GOOD.replace("sample", "late").replace("SAMPLE", "LATE").replace("default = true", "default = false")
    overlay(tmp_path, late, "late")
    both = read_all(tmp_path / "experimental")

    def on(environ: dict[str, str], **given: Any) -> list[str]:
        return [item.name for item in chosen(both, environ, **given)]

    assert on({}) == ["sample"]
    assert on({"GLM53_OVERLAY_LATE": "1"}) == on({}, wanted=["late"]) == ["late", "sample"]
    assert on({"GLM53_OVERLAY_SAMPLE": "0"}) == on({}, without=["sample"]) == []
    assert on({"GLM53_OVERLAY_LATE": "1"}, without=["late"]) == ["sample"]
    assert on({}, stock=True) == []
    for given, named in (
        ({"stock": True, "without": ["lat"]}, "--without: seen lat"),
        ({"stock": True, "wanted": ["late"]}, "--stock"),
        ({"wanted": ["late"], "without": ["late"]}, "--without late"),
    ):
        with pytest.raises(Refusal, match=named):
            on({}, **given)
    with pytest.raises(Refusal, match="--with late, and GLM53_OVERLAY_LATE=0"):
        on({"GLM53_OVERLAY_LATE": "0"}, wanted=["late"])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("GLM53_OVERLAY_MHC", "off"),
        ("GLM53_OVERLAY_DENSE_FP8_LM_HEAD", "yes"),
        ("GLM53_OVERLAY_DENSE_FP8_SKIP", "*"),
        ("GLM53_OVERLAY_DENSE_W4_PATTERN", "("),
        ("GLM53_OVERLAY_DENSE_W4_MAX_TOKENS", "65"),
        ("GLM53_OVERLAY_MOE_DECODE_MAX_TOKENS", "abc"),
        ("GLM53_OVERLAY_MOE_DECODE_MAX_TOKENS", "-5"),
        ("GLM53_OVERLAY_MOE_DECODE_MAX_TOKENS", "0"),
        ("GLM53_OVERLAY_MOE_DECODE_MAX_TOKENS", "\u0661"),
    ],
)
def test_a_setting_is_judged_before_docker_and_before_a_weight_is_read(name: str, text: str) -> None:
    (told,) = misset(read_all(), {name: text})
    assert told.setting == name
    (data,) = [data for data in switched_on(ROOM, {}) if f"overlay {data['name']})" in told.cure]
    named = rf"overlay {data['name']}: {name} is .*, expected {re.escape(told.expected)}"
    with pytest.raises(OverlayMisset, match=named):
        judge(data, {name: text})
    assert not misset(read_all(), {name: ""})
    judge(data, {name: ""})


def test_a_switch_of_zero_turns_an_overlay_off(tmp_path: Path) -> None:
    overlay(tmp_path)
    room = tmp_path / "experimental"
    assert [data["name"] for data in switched_on(room, {})] == ["sample"]
    assert switched_on(room, {PREFIX + "SAMPLE": "0"}) == []


def test_the_overlays_of_this_repository_are_sound() -> None:
    names = [item.name for item in read_all()]
    assert names.index("nvfp4") < names.index("dense_fp8") < names.index("dense_w4")
    for item in read_all():
        assert all(hook.digests for hook in item.hooks), f"{item.name}: run python3 -m experimental.fit TREE"
