"""Trees that are not what a patch was cut for: the right verdict, and not one byte written in a failing run."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from core.refusal import Refusal
from image.inspection import Looked
from image.patches import PATCHES
from image.patching import Tree, Verdict, changes, check, write
from launcher.verbs import patches as verb
from tests.image.published import apply, contents, files_of_patches, vllm_tree

SPIN = "vllm/distributed/device_communicators/shm_broadcast.py"
CUDA = "vllm/platforms/cuda.py"
PARSER = "vllm/parser/glm47_moe.py"
GROUPS = "vllm/v1/core/kv_cache_utils.py"
LINE = "        busy_loop_s: float = 1,\n"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The files of 0.31.0 that patches name."""
    return files_of_patches(vllm_tree("0.31.0"), tmp_path / "site-packages")


def edit(path: Path, change: Callable[[str], str]) -> None:
    text = path.read_text()
    assert change(text) != text, "the mutation does nothing"
    path.write_text(change(text))


def verdict_of(tree: Path, name: str) -> Verdict:
    return next(verdict for verdict in check(Tree(tree), PATCHES).verdicts if verdict.patch.name == name)


def refused(tree: Path, name: str, *words: str) -> None:
    """The patch is in drift for the reason given, exit status is 1, and nothing was written."""
    before = contents(tree)
    verdict = verdict_of(tree, name)
    assert verdict.state == "drift"
    for word in words:
        assert word in "\n".join(verdict.reasons), verdict.reasons
    assert verb.run(["apply", str(tree)]) == 1
    assert contents(tree) == before


def test_anchor_renamed(tree: Path) -> None:
    edit(tree / SPIN, lambda text: text.replace(LINE, "        busy_loop_seconds: float = 1,\n"))
    refused(tree, "spin-wait", SPIN, "SpinCondition.__init__", "nearest match 0.9", "busy_loop_seconds")


def test_anchor_duplicated(tree: Path) -> None:
    edit(tree / PARSER, lambda text: re.sub(r"(        chat_kwargs = kwargs.*\n)", r"\1\1", text))
    refused(tree, "reasoning-always-parsed", "2 anchors and 0 replacements", "expected one")


def test_anchor_in_another_function_is_not_a_match(tree: Path) -> None:
    other = f"\n\ndef unrelated(\n{LINE}) -> None: ...\n"
    edit(tree / SPIN, lambda text: text + other)
    assert verdict_of(tree, "spin-wait").state == "needed"


def test_anchor_moved_out_of_its_scope(tree: Path) -> None:
    def move(text: str) -> str:
        return text.replace(LINE, "") + f"\n\ndef elsewhere(\n{LINE}) -> None: ...\n"

    edit(tree / SPIN, move)
    refused(tree, "spin-wait", "moved out of its scope", "elsewhere line")


def test_anchor_indented_anew(tree: Path) -> None:
    def deeper(text: str) -> str:
        return text.replace("        return major >= 9\n", "        if True:\n            return major >= 9\n")

    edit(tree / CUDA, deeper)
    refused(tree, "sm121-no-pdl", "nearest match 0.9", "+            return major >= 9")


def test_scope_renamed(tree: Path) -> None:
    edit(tree / SPIN, lambda text: text.replace("class SpinCondition", "class WaitCondition"))
    refused(tree, "spin-wait", "scope SpinCondition.__init__ is gone", "WaitCondition.__init__")


def test_file_gone(tree: Path) -> None:
    (tree / SPIN).unlink()
    refused(tree, "spin-wait", f"{SPIN} is gone")


def test_file_moved(tree: Path) -> None:
    target = tree / "vllm/v1/shm_broadcast.py"
    shutil.move(tree / SPIN, target)
    refused(tree, "spin-wait", "is gone; its anchor stands in vllm/v1/shm_broadcast.py (SpinCondition.__init__, line ")


def test_file_moved_and_renamed(tree: Path) -> None:
    """As sparse_attn_indexer_kpool.py became sparse_indexer.py between 0.30.0 and 0.31.0."""
    shutil.move(tree / SPIN, tree / "vllm/v1/spinning.py")
    refused(tree, "spin-wait", "is gone; its anchor stands in vllm/v1/spinning.py (SpinCondition.__init__, line ")


def test_file_moved_and_the_anchor_changed(tree: Path) -> None:
    """The likest path is named first: modules of one name lie in many folders."""
    for target in ("vllm/a/shm_broadcast.py", "vllm/distributed/communicators/shm_broadcast.py"):
        (tree / target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(tree / SPIN, tree / target)
        edit(tree / target, lambda text: text.replace(LINE, "        busy_loop_seconds: float = 1,\n"))
    (tree / SPIN).unlink()
    places = "vllm/distributed/communicators/shm_broadcast.py, vllm/a/shm_broadcast.py"
    refused(tree, "spin-wait", f"is gone; SpinCondition.__init__ is in {places}")
    for target in places.split(", "):
        edit(tree / target, lambda text: text.replace("class SpinCondition", "class Spinning"))
    refused(tree, "spin-wait", f"is gone; files of that name: {places}")


def test_half_applied(tree: Path) -> None:
    """Seven parts in, one back out: neither the base nor the patched tree."""
    apply(tree)
    edit(tree / GROUPS, lambda text: text.replace("        + draft_groups\n", ""))
    refused(tree, "draft-kv-groups", "half applied: 8 of 9 parts")


def test_read_only(tree: Path) -> None:
    (tree / SPIN).chmod(0o444)
    before = contents(tree)
    reading = Tree(tree)
    with pytest.raises(Refusal, match="read-only"):
        write(reading, changes(reading, check(reading, PATCHES)))
    assert contents(tree) == before


def test_windows_line_ends(tree: Path) -> None:
    path = tree / SPIN
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    refused(tree, "spin-wait", "CRLF")


def test_link_out_of_the_tree(tree: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.py"
    shutil.move(tree / SPIN, outside)
    (tree / SPIN).symlink_to(outside)
    before = outside.read_bytes()
    refused(tree, "spin-wait", "is a link out of the tree")
    assert outside.read_bytes() == before


def test_folder_that_is_a_link(tree: Path, tmp_path: Path) -> None:
    shutil.move(tree / "vllm/platforms", tmp_path / "platforms")
    (tree / "vllm/platforms").symlink_to(tmp_path / "platforms")
    refused(tree, "sm121-no-pdl", "is a link out of the tree")


def test_applied_by_hand(tree: Path) -> None:
    """The state is read from the text, so it does not matter who wrote it."""
    (spin,) = (patch for patch in PATCHES if patch.name == "spin-wait")
    edit(tree / SPIN, lambda text: text.replace(LINE, spin.variants[0].edits[0].replacement))
    assert verdict_of(tree, "spin-wait").state == "applied"
    assert SPIN not in apply(tree)


def test_upstream_fixed_it(tree: Path) -> None:
    """0.32.0's file in the place of 0.31.0's: the fix is seen, the patch left out, all others applied."""
    name = "vllm/v1/attention/backends/mla/flashinfer_mla_sparse_sm90.py"
    shutil.copyfile(vllm_tree("0.32.0") / name, tree / name)
    assert verdict_of(tree, "fp8-kv-plan-dtype").state == "fixed upstream"
    apply(tree)
    assert verdict_of(tree, "fp8-kv-plan-dtype").state == "fixed upstream"
    assert verdict_of(tree, "sm121-backend-gates").state == "applied"


def test_comments_elsewhere_do_not_matter(tree: Path) -> None:
    edit(tree / SPIN, lambda text: text.replace(LINE, LINE + "        # a remark of the authors\n"))
    assert verdict_of(tree, "spin-wait").state == "needed"


def test_comment_inside_an_anchor_is_named_as_such(tree: Path) -> None:
    edit(
        tree / CUDA,
        lambda text: text.replace(
            "                AttentionBackendEnum.TRITON_MLA,\n"
            "                AttentionBackendEnum.FLASHINFER_MLA_SPARSE_SM120,\n",
            "                AttentionBackendEnum.TRITON_MLA,\n"
            "                # dense first\n"
            "                AttentionBackendEnum.FLASHINFER_MLA_SPARSE_SM120,\n",
        ),
    )
    refused(tree, "sm121-backend-list", "differs in comments or blank lines only")


def test_file_that_does_not_parse(tree: Path) -> None:
    edit(tree / SPIN, lambda text: text.replace("class SpinCondition:", "class SpinCondition"))
    refused(tree, "spin-wait", "does not parse")


def test_a_foreign_file_where_one_is_added(tree: Path) -> None:
    (tree / "vllm/glm53_memory.py").write_text("# somebody else's\n")
    refused(tree, "worker-memory-cap", "glm53_memory.py exists with another content")


@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failure_while_writing_is_undone(tree: Path, monkeypatch: pytest.MonkeyPatch, failure: BaseException) -> None:
    """The disk fails, or somebody presses Ctrl-C, at the fourth rename: the three that were made are taken back, no
    stray file stays.
    """
    before = contents(tree)
    real, calls = Path.replace, 0

    def failing(self: Path, target: Path) -> Path:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise failure
        return real(self, target)

    reading = Tree(tree)
    result = changes(reading, check(reading, PATCHES))
    monkeypatch.setattr(Path, "replace", failing)
    with pytest.raises(type(failure)):
        write(reading, result)
    monkeypatch.undo()
    assert contents(tree) == before


def test_the_disk_is_full_before_anything_is_renamed(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import image.writing as writing

    before = contents(tree)
    real, calls = writing._beside, 0

    def failing(path: Path, content: bytes) -> Path:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise OSError(28, "No space left on device")
        return real(path, content)

    reading = Tree(tree)
    result = changes(reading, check(reading, PATCHES))
    monkeypatch.setattr(writing, "_beside", failing)
    with pytest.raises(OSError, match="No space"):
        write(reading, result)
    monkeypatch.undo()
    assert contents(tree) == before


@pytest.mark.parametrize(("action", "name"), [("check", "./nowhere"), ("check", "/nowhere"), ("apply", "glm53:local")])
def test_a_folder_that_is_not_there_is_no_image_and_an_image_is_only_looked_at(action: str, name: str) -> None:
    with pytest.raises(Refusal, match="an existing folder that holds vllm/"):
        verb.run([action, name])


def test_json_is_nothing_but_json(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for action, state in (("check", "needed"), ("apply", "applied"), ("remove", "needed")):
        assert verb.run([action, str(tree), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["patches"]["spin-wait"] == state
    edit(tree / SPIN, lambda text: text.replace("class SpinCondition", "class WaitCondition"))
    assert verb.run(["apply", str(tree), "--json"]) == 1
    said = capsys.readouterr()
    assert json.loads(said.out)["patches"]["spin-wait"] == "drift"
    assert "nothing was written" in said.err


def test_an_image_that_drifts_is_not_said_to_be_base_and_patches(tree: Path) -> None:
    clean = verb.seen(Looked(check(Tree(tree), PATCHES), 7, []))
    assert clean[-1] == "7 files of the base, 0 differ from base + patches"
    edit(tree / SPIN, lambda text: text.replace("class SpinCondition", "class WaitCondition"))
    drifted = verb.seen(Looked(check(Tree(tree), PATCHES), 7, None))
    assert drifted[-1] == "not compared with the base, file by file, while a patch drifts"
