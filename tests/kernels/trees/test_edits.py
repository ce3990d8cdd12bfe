"""Edits in memory: each finds its line in vLLM's published functions once and leaves valid Python."""

import ast
import textwrap

import pytest

from experimental.causal_conv import grouped
from experimental.causal_conv import hook as conv_hook
from experimental.edit import edited
from experimental.head_gate import hook as gate_hook
from experimental.topk import hook as topk_hook
from lab.vllm import tree

MODELS = "vllm/models/glm5next"
CONV = "vllm/model_executor/layers/mamba/ops/causal_conv1d.py"
EDITS = (
    (f"{MODELS}/nvidia/sparse_indexer.py", "sparse_attn_indexer_kpool", topk_hook.EDITS),
    (f"{MODELS}/common/attention.py", "Indexer.forward", gate_hook.EDITS),
    (f"{MODELS}/common/kda.py", "Glm5NextLinearAttention._forward", conv_hook.EDITS),
    (CONV, grouped.KERNEL, grouped.KERNEL_EDITS),
    (CONV, grouped.LAUNCHER, grouped.LAUNCHER_EDITS),
)


def source_of(text: str, function: str) -> str:
    node: ast.AST = ast.parse(text)
    for part in function.split("."):
        node = next(child for child in ast.iter_child_nodes(node) if getattr(child, "name", None) == part)
    assert isinstance(node, ast.FunctionDef)
    assert node.end_lineno is not None
    return textwrap.dedent("\n".join(text.splitlines()[node.lineno - 1 : node.end_lineno]) + "\n")


@pytest.mark.parametrize("version", ["0.31.0", "0.32.0"])
@pytest.mark.parametrize(("file", "function", "edits"), EDITS, ids=[item[1] for item in EDITS])
def test_each_edit_finds_its_line_once_and_leaves_python(version: str, file: str, function: str, edits: tuple) -> None:  # type: ignore[type-arg]
    source = source_of((tree(version) / file).read_text(), function)
    ast.parse(edited(source, edits, function))
