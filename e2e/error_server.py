"""Plays a vLLM that is broken but alive: it answers probes with 200 and everything else with 500.

python error_server.py PORT
"""

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    """Answers, and keeps connections open as vLLM does."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer a probe."""
        self._answer(200)

    def do_POST(self) -> None:
        """Fail a request."""
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._answer(500)

    def _answer(self, status: int) -> None:
        body = b'{"error": {"message": "by the test", "type": "InternalServerError", "code": 500}}'
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Write no log."""


if __name__ == "__main__":
    with ThreadingHTTPServer(("", int(sys.argv[1])), Handler) as server:
        print("listening", flush=True)  # noqa: T201
        server.serve_forever()
