"""`./glm53 image send` over real ssh: an sshd a box on loopback, each with a docker of its own that keeps one file."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from image import sending
from launcher.verbs import image as verb

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
pytestmark = pytest.mark.skipif(SSHD is None, reason="no sshd here (.ci/run installs openssh-server)")

# Keeps one image, whose only layer is the sha256 of its bytes: what arrives changed has another id. Docker's own Id is
# another on every box, as with boxes of both image stores.
DOCKER = """#!/bin/sh
set -eu
image="$BOX/image"
case "$1" in
  save) cat "$image" ;;
  load) [ ! -e "$BOX/full" ] || { head -c 1000000 >/dev/null; echo "no space left on device" >&2; exit 1; }
        cat > "$image" ;;
  image) [ -f "$image" ] || { echo "Error: No such image: $3" >&2; exit 1; }
         layer=$(sha256sum "$image" | cut -d ' ' -f 1)
         echo "[{\\"Id\\": \\"$BOX\\", \\"Os\\": \\"linux\\", \\"Architecture\\": \\"arm64\\", \\"Config\\": {},"
         echo " \\"RootFS\\": {\\"Type\\": \\"layers\\", \\"Layers\\": [\\"sha256:$layer\\"]}}]" ;;
esac
"""
SIZE = 24 << 20  # more than every buffer on the way


@dataclass
class Boxes:
    """Folders `here`, `one` and `two`; `daemons` are the sshd of the last two."""

    folder: Path
    daemons: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def image(self, box: str) -> Path:
        return self.folder / box / "image"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def key(path: Path) -> str:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    return path.with_suffix(".pub").read_text()


def serve(boxes: Boxes, name: str, port: int) -> None:
    """An sshd for one box; commands there find its own docker first."""
    folder = boxes.folder / name
    (folder / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder / 'host_key'}\nPidFile none\n"
        "UsePAM no\nStrictModes no\n"
        f"AuthorizedKeysFile {boxes.folder / 'user_key.pub'}\nPasswordAuthentication no\nLogLevel ERROR\n"
        f"KbdInteractiveAuthentication no\nSetEnv BOX={folder} PATH={boxes.folder / 'bin'}:/usr/bin:/bin\n"
    )
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # where sshd, started as root, confines its unprivileged half
    log = (folder / "sshd.log").open("wb")
    boxes.daemons.append(
        subprocess.Popen([str(SSHD), "-D", "-e", "-f", str(folder / "sshd_config")], stdout=log, stderr=log)
    )
    deadline = time.monotonic() + 20
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            assert time.monotonic() < deadline, (folder / "sshd.log").read_text()
            time.sleep(0.05)


@pytest.fixture
def boxes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Boxes]:
    made = Boxes(tmp_path)
    for name in ("bin", "here", "one", "two"):
        (tmp_path / name).mkdir()
    made.image("here").write_bytes(os.urandom(SIZE))
    key(tmp_path / "user_key")
    known, hosts = [], []
    for name in ("one", "two"):
        port, public = free_port(), key(tmp_path / name / "host_key")
        serve(made, name, port)
        known.append(f"[127.0.0.1]:{port} {public}")
        hosts.append(f"Host {name}\n  HostName 127.0.0.1\n  Port {port}\n")
    hosts.append(f"Host off\n  HostName 127.0.0.1\n  Port {free_port()}\n")
    (tmp_path / "known_hosts").write_text("".join(known))
    (tmp_path / "ssh_config").write_text(
        "".join(hosts)
        + f"Host *\n  IdentityFile {tmp_path / 'user_key'}\n  IdentitiesOnly yes\n  IdentityAgent none\n"
        + f"  UserKnownHostsFile {tmp_path / 'known_hosts'}\n  GlobalKnownHostsFile none\n"
    )
    ssh = shutil.which("ssh")
    for name, text in {"docker": DOCKER, "ssh": f'#!/bin/sh\nexec {ssh} -F {tmp_path}/ssh_config "$@"\n'}.items():
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("BOX", str(tmp_path / "here"))
    yield made
    for daemon in made.daemons:
        daemon.terminate()
        daemon.wait(20)


def send(*hosts: str) -> list[tuple[str, str]]:
    return [(sent.state, sent.detail) for sent in sending.send("glm53:local", hosts, print)]


def test_the_image_arrives_whole_and_a_second_time_nothing_is_sent(boxes: Boxes) -> None:
    mine, _ = sending.image_id("glm53:local")
    assert send("one", "two") == [("sent", mine)] * 2
    assert boxes.image("two").read_bytes() == boxes.image("here").read_bytes()
    arrived = boxes.image("one").stat().st_mtime_ns
    assert send("one") == [("there", mine)]
    assert boxes.image("one").stat().st_mtime_ns == arrived


def test_one_bad_box_does_not_keep_the_others_from_theirs(boxes: Boxes, capsys: pytest.CaptureFixture[str]) -> None:
    (boxes.folder / "one" / "full").touch()
    assert verb.run(["send", "off", "one", "two"]) == 1
    out = capsys.readouterr().out
    assert "off: failed ssh: connect to host 127.0.0.1" in out
    assert "one: failed no space left on device" in out
    assert "two: sent sha256:" in out
    assert verb.run(["send", "two"]) == 0


def test_an_older_image_of_the_same_name_is_replaced(boxes: Boxes) -> None:
    boxes.image("one").write_bytes(b"older")
    ((state, _),) = send("one")
    assert state == "sent"
    assert boxes.image("one").stat().st_size == SIZE


def test_a_host_that_changed_its_key_and_one_that_does_not_know_ours(boxes: Boxes) -> None:
    """Nobody is asked for a password or a yes: the run must end by itself."""
    hosts = boxes.folder / "known_hosts"
    first, second = hosts.read_text().splitlines()
    stranger = key(boxes.folder / "stranger").strip()
    hosts.write_text(f"{first.split()[0]} {stranger}\n{second}\n")
    (boxes.folder / "user_key.pub").write_text(stranger + "\n")
    (changed, denied) = send("one", "two")
    assert (changed[0], "Host key verification failed" in changed[1]) == ("failed", True)
    assert (denied[0], "Permission denied" in denied[1]) == ("failed", True)
    assert not boxes.image("one").exists()
