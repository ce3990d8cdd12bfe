"""Each room says in two lines what lives there; the pure rooms import the standard library only."""

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PURE = ("core", "launcher", "entrypoint/sizing", "entrypoint/serve", "group")


def packages() -> list[Path]:
    out = subprocess.run(["git", "ls-files", "*/__init__.py"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in out.stdout.split() if not name.startswith("tests/")]


def test_every_room_has_a_docstring() -> None:
    for init in packages():
        assert ast.get_docstring(ast.parse(init.read_text())), init


def test_knobs_import_the_standard_library_only() -> None:
    code = "import sys; from core.registry import registry; registry(); print(*{m.split('.')[0] for m in sys.modules})"
    done = subprocess.run([sys.executable, "-S", "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    foreign = set(done.stdout.split()) & {
        "httpx",
        "yaml",
        "jinja2",
        "starlette",
        "torch",
        "zeroconf",
        "numpy",
    }
    assert not foreign
