#!/usr/bin/env python3
"""Stands in for vLLM where only the boot is tried: takes its argv, answers /health on the head, waits to be ended.

Real vLLM is tried by tests/main/lab; this one starts in 0.3 s.
"""

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Health(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def do_POST(self) -> None:
        """One token, unless the file beside the model says that a rank is stuck."""
        self.rfile.read(int(self.headers["Content-Length"]))
        while (Path(sys.argv[sys.argv.index("serve") + 1]) / "stuck").exists():
            time.sleep(0.1)
        choice = {"index": 0, "message": {"role": "assistant", "content": "2"}, "finish_reason": "length"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        body = json.dumps({"id": "1", "model": "glm53", "choices": [choice], "usage": usage}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


print("fake engine", *sys.argv[1:], flush=True)
if "--port" in sys.argv:
    port = int(sys.argv[sys.argv.index("--port") + 1])
    ThreadingHTTPServer(("127.0.0.1", port), Health).serve_forever()
time.sleep(3600)
