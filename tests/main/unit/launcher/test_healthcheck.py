"""Docker's health check asks the page where it listens, and passes its sentence on."""

import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from entrypoint.healthcheck import url

ROOT = Path(__file__).resolve().parents[4]


def check(port: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "entrypoint.healthcheck"],
        cwd=ROOT, env={"STATUS_PORT": str(port), "http_proxy": "http://127.0.0.1:9"}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip


@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1)])
def test_the_answer_of_healthz_decides(status: int, code: int) -> None:
    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/healthz" else 404)
            self.end_headers()
            self.wfile.write(b'{"sentence": "loading shard 3"}')

        def log_message(self, *_: Any) -> None:
            return

    with HTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        done = check(server.server_port)
    assert done.returncode == code
    assert "loading shard 3" in done.stdout


def test_no_page_is_unhealthy() -> None:
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        port = server.server_port
    done = check(port)
    assert (done.returncode, "no page" in done.stdout) == (1, True)


def test_a_page_bound_to_one_address_is_asked_there() -> None:
    assert url({"STATUS_BIND": "10.0.0.9", "STATUS_PORT": "8090"}) == "http://10.0.0.9:8090/healthz"
    assert url({"STATUS_BIND": "0.0.0.0"}) == "http://127.0.0.1:8082/healthz"
