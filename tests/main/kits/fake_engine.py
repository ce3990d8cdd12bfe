#!/usr/bin/env python3
"""Stands in for vLLM where only the boot is tried: takes its argv, answers /health on the head, waits to be ended.

Real vLLM is tried by tests/main/lab; this one starts in 0.3 s.
"""

import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Health(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *arguments: object) -> None:
        pass


print("fake engine", *sys.argv[1:], flush=True)
if "--port" in sys.argv:
    port = int(sys.argv[sys.argv.index("--port") + 1])
    ThreadingHTTPServer(("127.0.0.1", port), Health).serve_forever()
time.sleep(3600)
