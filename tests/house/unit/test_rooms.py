"""Each room says in two lines what lives there; the pure rooms import the standard library only."""

import ast
import re
import subprocess
import sys
from pathlib import Path

from core.registry import registry

ROOT = Path(__file__).resolve().parents[3]
PURE = ("core", "launcher", "entrypoint/sizing", "entrypoint/serve", "group")


def packages() -> list[Path]:
    out = subprocess.run(["git", "ls-files", "*/__init__.py"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in out.stdout.split() if not name.startswith("tests/")]


def test_every_room_has_a_docstring() -> None:
    for init in packages():
        assert ast.get_docstring(ast.parse(init.read_text())), init


def test_knobs_import_the_standard_library_only() -> None:
    code = "import sys; from core.registry import registry; registry(); "
    code += "print(*{name.split('.')[0] for name, module in sys.modules.items() if module is not None})"
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


def test_every_knob_is_read_somewhere() -> None:
    """A variable that is declared and read by nothing would be set in vain. MEMBERSHIP's other value is refused."""
    later = {"MEMBERSHIP"}
    out = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    readers = [
        ROOT / name
        for name in out.stdout.split()
        if name.endswith((".py", ".sh", "Dockerfile"))
        and not name.endswith("knobs.py")
        and not name.startswith(("tests/", "launcher/generate"))
    ]
    words = {word for file in readers if file.is_file() for word in re.findall(r"[A-Z][A-Z0-9_]+", file.read_text())}
    assert set(registry()) - words <= later
