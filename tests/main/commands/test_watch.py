"""./glm53 watch: through any one page it finds all boxes, shows what changes, and ends with what to type next."""

import contextlib
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from launcher.watching import Seen, refusals, row, serving, table

ROOT = Path(__file__).resolve().parents[3]


def status(lan: str, role: str, *, healthy: bool, stage: str = "launch", **more: Any) -> dict[str, Any]:
    stages = [
        {"key": "page", "label": "page up", "state": "done", "elapsed_s": 0.1, "deadline_s": None, "step": ""},
        {"key": stage, "label": stage, "state": "running", "elapsed_s": 65.0, "deadline_s": 3600.0, "step": "shard 3"},
    ]
    return {
        "service": {"name": "glm53", "served_name": "glm53", "hostname": f"box-{role}"},
        "box": {"lan": lan, "role": role, "rank": 0 if role == "head" else 1},
        "stage": stage, "stages": stages, "healthy": healthy, "sentence": "" if healthy else "loading", "refusals": [],
        "members": [{"lan": "127.0.0.1"}, {"lan": "127.0.0.2"}], "url": "http://127.0.0.1:8002/v1", **more,
    }  # fmt: skip


@contextmanager
def pages(answers: dict[str, dict[str, Any]]) -> Iterator[int]:
    """A page on the same port of every address in `answers`."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            host = self.request.getsockname()[0]
            body = json.dumps(answers[host]).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            return

    first, *others = answers
    servers = [ThreadingHTTPServer((first, 0), Page)]
    port = int(servers[0].server_address[1])
    servers += [ThreadingHTTPServer((host, port), Page) for host in others]
    for server in servers:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield port
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()


def watch(port: int, *more: str, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "glm53", "watch", "--until", "serving", "--box", f"127.0.0.1:{port}", *more]
    return subprocess.run(
        command, cwd=ROOT, env={"PATH": "/usr/bin", **environ}, capture_output=True, text=True, timeout=30, check=False
    )


def test_it_ends_with_the_url_the_model_and_a_curl_line() -> None:
    answers = {
        host: status(host, role, healthy=True) for host, role in (("127.0.0.1", "head"), ("127.0.0.2", "worker"))
    }
    with pages(answers) as port:
        done = watch(port, API_KEY="hunter2", http_proxy="http://127.0.0.1:9")
    assert done.returncode == 0, done.stderr
    assert "serving at http://127.0.0.1:8002/v1" in done.stdout
    assert "curl -s http://127.0.0.1:8002/v1/chat/completions" in done.stdout
    assert "Bearer $API_KEY" in done.stdout
    assert "hunter2" not in done.stdout
    assert "box-worker" in done.stdout  # found through the first box


def test_a_box_that_is_not_healthy_is_waited_for() -> None:
    answers = {
        "127.0.0.1": status("127.0.0.1", "head", healthy=True),
        "127.0.0.2": status("127.0.0.2", "worker", healthy=False),
    }
    with pages(answers) as port:
        done = watch(port, "--timeout", "2")
    assert done.returncode == 1
    assert "not serving after 2 s" in done.stderr


def test_a_refusal_that_stays_ends_the_watch_and_is_told() -> None:
    refused = {"setting": "TP", "seen": "2 here, 4 at box-b", "expected": "one TP", "cure": "Set TP=4 on both."}
    with pages({"127.0.0.1": status("127.0.0.1", "head", healthy=False, members=[], refusals=[refused])}) as port:
        done = watch(port)
    assert done.returncode == 1
    assert "Set TP=4 on both." in done.stderr


def test_a_bad_box_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "glm53", "watch", "--box", "a:b"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2


def test_a_group_serves_when_every_box_says_so_and_one_is_head() -> None:
    head = Seen("a", status("a", "head", healthy=True))
    worker = Seen("b", status("b", "worker", healthy=True))
    assert serving([worker, head]) == head
    assert serving([worker]) is None
    assert serving([head, Seen("b", None, "timed out")]) is None
    assert serving([]) is None


def test_a_row_names_role_stage_time_and_deadline() -> None:
    text = row(Seen("10.0.0.9", status("10.0.0.9", "worker", healthy=False)))
    for words in ("10.0.0.9", "box-worker", "worker 1", "2/2 launch", "1m05s of 1h00m", "shard 3"):
        assert words in text
    assert "Connection refused" in row(Seen("10.0.0.9", None, "Connection refused"))


@pytest.mark.parametrize("garbage", [{}, {"stages": 3, "members": "x", "box": [], "refusals": None}])
def test_a_page_of_another_version_does_not_break_the_watch(garbage: dict[str, Any]) -> None:
    assert table([Seen("a", garbage)], 1.0)
    assert refusals([Seen("a", garbage)]) == []


@pytest.mark.parametrize(
    "words", ["--box 127.0.0.1:99999", "--box a:b:c", "--box :8082", "--box a:\u0668", "--timeout -1", "--timeout nan"]
)
def test_a_slip_is_refused_and_not_watched_for_ever(words: str) -> None:
    command = [sys.executable, str(ROOT / "glm53"), "watch", *words.split()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2
    assert f"glm53: {words.split()[0]}: seen " in done.stderr


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", "SSH-2.0-OpenSSH_9.2"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\n{", "no answer"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 100_000, "no answer"),
        (b"HTTP/1.1 200 OK\r\n\r\n[]", "no status in the answer"),
        (b'HTTP/1.1 200 OK\r\n\r\n{"service": {"hostname": "\\u001b[2Jx"}}', "\\x1b[2Jx"),
    ],
)
def test_garbage_on_the_port_is_a_box_without_an_answer(answer: bytes, said: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                with contextlib.suppress(OSError):
                    connection, _ = server.accept()
                    connection.recv(4096)
                    connection.sendall(answer)
                    connection.close()
                if server.fileno() == -1:
                    return

        threading.Thread(target=serve, daemon=True).start()
        box = f"127.0.0.1:{server.getsockname()[1]}"
        command = [sys.executable, str(ROOT / "glm53"), "watch", "--box", box, "--until", "serving", "--timeout", "1"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 1
    assert said in done.stdout
    assert "Traceback" not in done.stderr
    assert "\x1b" not in done.stdout
