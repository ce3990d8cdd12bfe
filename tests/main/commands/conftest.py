"""A copy of the kit, and a `docker` that records what it is asked: no engine with an NVIDIA runtime can exist here."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.compose_v2 import compose_v2

ROOT = Path(__file__).resolve().parents[3]
FAKE = """#!{python}
import json, os, subprocess, sys
from pathlib import Path
home = Path(__file__).parent
say = json.loads((home / "says.json").read_text())
words = sys.argv[1:]
with (home / "calls.jsonl").open("a") as out:
    print(json.dumps({{"words": words, "environ": dict(os.environ)}}), file=out)
if words[:2] == ["compose", "version"]:
    print(say["compose"]) if say["compose"] else sys.exit("docker: 'compose' is not a docker command.")
elif words[0] == "info":
    sys.exit(say["daemon"]) if say["daemon"] else print(json.dumps(say["runtimes"]))
elif words[0] == "image":
    found = {{"Id": "sha256:5eed", "Os": "linux", "Architecture": "arm64", "Config": {{}},
             "RootFS": {{"Type": "layers", "Layers": ["sha256:1a"]}}}}
    print(json.dumps([found])) if say["image"] else sys.exit("No such image")
elif words[0] == "pull":
    sys.exit("manifest unknown") if say["unknown"] else None
    (home / "says.json").write_text(json.dumps({{**say, "image": True}}))
elif words[-2:] == ["ps", "-q"]:
    ups = sum("up" in json.loads(line)["words"] for line in (home / "calls.jsonl").read_text().splitlines())
    print(say["running"][min(ups, len(say["running"]) - 1)])
elif words[0] == "ps":
    print(say["container"]) if say["container"] is not None else None
elif "up" in words and say["slow"]:
    import signal, time
    signal.signal(signal.SIGINT, lambda *_: (time.sleep(1), (home / "graceful").touch(), sys.exit(0)))
    (home / "running").touch()
    time.sleep(20)
elif words[0] == "compose" and "config" in words:
    if not os.path.isabs(say["real"][0]) or os.path.samefile(say["real"][0], __file__):
        sys.exit("the real Compose must be named by its path: by name, this script would call itself for ever")
    sys.exit(subprocess.run([*say["real"], *words[1:]]).returncode)
"""


@dataclass
class Kit:
    """`root` is a copy of the repository's own files; `docker` records calls and says what it was told to."""

    root: Path
    docker: Path
    environ: dict[str, str]

    def says(self, **answers: Any) -> None:
        """Change what docker answers."""
        file = self.docker / "says.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), **answers}))

    def calls(self) -> list[dict[str, Any]]:
        """What docker was asked, in order."""
        file = self.docker / "calls.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def last(self) -> dict[str, Any]:
        """The last call, but for the look at what runs after `up -d`."""
        return [call for call in self.calls() if call["words"][-2:] != ["ps", "-q"]][-1]

    def run(
        self, *arguments: str, shell: Mapping[str, str] | None = None, cwd: Path | None = None, infiniband: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """./glm53 of the copy, with a shell of its own."""
        command = [sys.executable, str(self.root / "glm53"), *arguments]
        if infiniband:  # the one thing of the host that a test cannot make: looked up below another root
            command = [sys.executable, str(self.docker / "with_infiniband.py"), str(self.root), *arguments]
        return subprocess.run(
            command,
            cwd=cwd or self.root,
            env={**self.environ, **(shell or {})},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )


WITH_INFINIBAND = """
import sys
from functools import partial
from pathlib import Path
sys.path.insert(0, sys.argv[1])
sys.dont_write_bytecode = True
from launcher.__main__ import main
from launcher.verbs import compose
compose.look = partial(compose.look, root=Path(__file__).parent / "root")
sys.exit(main(sys.argv[2:]))
"""


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    """The kit with a docker that has everything a box needs."""
    root, docker = tmp_path / "glm53", tmp_path / "bin"
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "glm53", "*.py", "compose", "experimental", "model.toml"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    for name in listed:
        if not name.startswith(("tests/", "bench/")) and (ROOT / name).is_file():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, root / name)
    (docker / "root/dev/infiniband").mkdir(parents=True)
    (docker / "root/dev/infiniband/uverbs0").touch()
    (docker / "docker").write_text(FAKE.format(python=sys.executable))
    (docker / "docker").chmod(0o755)
    (docker / "with_infiniband.py").write_text(WITH_INFINIBAND)
    answers = {"compose": "2.29.1", "daemon": "", "runtimes": {"nvidia": {}, "runc": {}}, "image": True,
               "container": None, "real": [], "slow": False, "running": [""], "unknown": False}  # fmt: skip
    (docker / "says.json").write_text(json.dumps(answers))
    return Kit(root, docker, {"PATH": f"{docker}:{os.environ['PATH']}", "HOME": str(tmp_path)})


@pytest.fixture
def real_compose(kit: Kit) -> Kit:
    """The kit whose `docker compose config` is the real Compose v2."""
    kit.says(real=list(compose_v2()))
    return kit


@pytest.fixture
def model(tmp_path: Path) -> dict[str, str]:
    """Knobs that name a whole checkpoint and a whole drafter."""
    for name in ("model", "drafter"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
        (tmp_path / name / "model.safetensors").write_bytes(b"weights")
    return {"MODEL_HOST_DIR": str(tmp_path / "model"), "DFLASH_HOST_DIR": str(tmp_path / "drafter")}
