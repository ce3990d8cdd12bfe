"""The patch engine on small files: scopes, what counts as a match, what is restored."""

from pathlib import Path

import pytest

from core.refusal import Refusal
from image.patching import Addition, Edit, Patch, Tree, Variant, Witness, changes, check, write
from image.scopes import SourceFile, Text, find
from launcher.verbs import patches as verb

SOURCE = '''\
"""A module."""

import os


def f(x):
    return x + 1


class A:
    @staticmethod
    def f(x):
        return x + 1

    def g(self):
        def inner():
            return 1

        return inner
'''


def a_patch(*edits: Edit, name: str = "p", fixed: tuple[Witness, ...] = ()) -> Patch:
    return Patch(name, "t", "w", "u", "o", (Variant("v", edits),), fixed=fixed, package="pkg")


def tree_with(folder: Path, text: str = SOURCE, name: str = "pkg/a.py") -> Tree:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    return Tree(folder)


def lines(source: SourceFile, scope: str | Text) -> list[str]:
    return [source.text[start:end] for start, end in source.spans(scope)]


def test_scopes_are_qualified_names_with_decorators() -> None:
    source = SourceFile(SOURCE)
    assert lines(source, "f") == ["def f(x):\n    return x + 1\n"]
    assert lines(source, "A.f") == ["    @staticmethod\n    def f(x):\n        return x + 1\n"]
    assert lines(source, "A.g.inner") == ["        def inner():\n            return 1\n"]
    assert lines(source, "module") == [SOURCE]
    assert lines(source, "A.h") == []


def test_a_form_feed_does_not_shift_the_scopes() -> None:
    source = SourceFile('X = "a\u2028b"\n\x0c\n' + SOURCE)
    assert lines(source, "f") == ["def f(x):\n    return x + 1\n"]


def test_text_scopes_run_from_one_line_to_another() -> None:
    source = SourceFile("a\nBEGIN x\nb\nEND\nb\n")
    assert lines(source, Text("BEGIN", "END")) == ["BEGIN x\nb\nEND\n"]
    assert lines(source, Text("BEGIN", "NEVER")) == []


def test_only_whole_lines_match() -> None:
    text = "    return x\nreturn x\n"
    assert find(text, "return x\n", (0, len(text))) == [(13, 22)]


def test_an_edit_is_made_of_whole_lines() -> None:
    with pytest.raises(AssertionError):
        Edit("pkg/a.py", "f", "return", "return\n")
    with pytest.raises(AssertionError):
        Edit("pkg/a.py", "f", "return\n", "return\n")


def test_insertion_and_deletion_are_told_from_their_own_text(tmp_path: Path) -> None:
    """The replacement holds the anchor, or the anchor holds the replacement: applied and clean stay different."""
    insert = a_patch(Edit("pkg/a.py", "f", "    return x + 1\n", "    x = x\n    return x + 1\n"), name="insert")
    delete = a_patch(
        Edit("pkg/a.py", "A.g.inner", "        def inner():\n            return 1\n", "        def inner():\n")
    )
    tree = tree_with(tmp_path)
    assert [verdict.state for verdict in check(tree, [insert, delete]).verdicts] == ["needed", "needed"]
    write(tree, changes(tree, check(tree, [insert])))
    assert [verdict.state for verdict in check(Tree(tmp_path), [insert]).verdicts] == ["applied"]
    again = Tree(tmp_path)
    assert changes(again, check(again, [insert])) == {}
    write(again, changes(again, check(again, [insert]), remove=True))
    assert (tmp_path / "pkg/a.py").read_text() == SOURCE


def test_two_patches_on_the_same_lines_are_both_refused(tmp_path: Path) -> None:
    one = a_patch(Edit("pkg/a.py", "f", "    return x + 1\n", "    return x + 2\n"), name="one")
    two = a_patch(Edit("pkg/a.py", "f", "def f(x):\n    return x + 1\n", "def f(x):\n    return 0\n"), name="two")
    report = check(tree_with(tmp_path), [one, two])
    assert {verdict.state for verdict in report.verdicts} == {"drift"}
    assert "one and two edit the same lines" in report.verdicts[0].reasons[0]


def test_a_replacement_that_does_not_compile_is_never_written(tmp_path: Path) -> None:
    broken = a_patch(Edit("pkg/a.py", "f", "    return x + 1\n", "    return (\n"))
    tree = tree_with(tmp_path)
    with pytest.raises(SyntaxError):
        changes(tree, check(tree, [broken]))


def test_a_patch_that_disturbs_another_is_our_defect(tmp_path: Path) -> None:
    """`b` inserts a second copy of `a`'s anchor: found in memory, not in a user's tree."""
    a = a_patch(Edit("pkg/a.py", "f", "    return x + 1\n", "    return x + 2\n"), name="a")
    b = a_patch(
        Edit("pkg/a.py", "f", "def f(x):\n", "def f(x):\n    if x:\n        pass\n    return x + 1\n"), name="b"
    )
    tree = tree_with(tmp_path)
    with pytest.raises(AssertionError, match="a would be"):
        changes(tree, check(tree, [a, b]))


def test_removing_without_a_package_or_with_drift(tmp_path: Path) -> None:
    patch = a_patch(Edit("pkg/a.py", "f", "    return x + 3\n", "    return x + 2\n"))
    (tmp_path / "empty").mkdir()
    assert check(Tree(tmp_path / "empty"), [patch]).verdicts[0].state == "unverifiable here"
    tree = tree_with(tmp_path)
    report = check(tree, [patch])
    assert report.verdicts[0].state == "drift"
    with pytest.raises(Refusal, match="drift in p"):
        changes(tree, report)


def test_added_files_come_and_go(tmp_path: Path) -> None:
    addition = Addition("pkg/glm53_memory.py", "payload/glm53_memory.py")
    patch = Patch("p", "t", "w", "u", "o", (Variant("v", (), (addition,)),), package="pkg")
    tree = tree_with(tmp_path)
    write(tree, changes(tree, check(tree, [patch])))
    assert (tmp_path / addition.file).read_bytes() == addition.content()
    tree = Tree(tmp_path)
    write(tree, changes(tree, check(tree, [patch]), remove=True))
    assert not (tmp_path / addition.file).exists()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [(["check"], "a folder that holds vllm/"), (["check", "/nowhere"], "existing folder"), (["check", "."], "vllm/")],
)
def test_wrong_arguments_name_the_cure(arguments: list[str], expected: str, tmp_path: Path) -> None:
    if arguments[-1] == ".":
        arguments = ["check", str(tmp_path)]
    with pytest.raises(Refusal, match=expected):
        verb.run(arguments)


def test_the_package_itself_instead_of_its_parent(tmp_path: Path) -> None:
    (tmp_path / "vllm").mkdir()
    with pytest.raises(Refusal, match=f"patches check {tmp_path}$"):
        verb.run(["check", str(tmp_path / "vllm")])


def test_the_list_says_why_and_where_from(capsys: pytest.CaptureFixture[str]) -> None:
    assert verb.run(["list"]) == 0
    text = capsys.readouterr().out
    assert "spin-wait: spin 2 ms" in text
    assert "vllm#55222" in text
