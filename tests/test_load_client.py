"""The client of loads tells answers that are whole from those that are not."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from e2e.load_client import Settings, ask

STREAMED, WHOLE = "0/4", "0/1"
EVENT = b'data: {"choices": [{"text": "a"}]}\n\n'
USAGE = b'data: {"choices": [], "usage": {"completion_tokens": 2}}\n\n'
DONE = b"data: [DONE]\n\n"
ERROR = b'data: {"error": {"message": "The D pod failed.", "type": "service_unavailable", "code": 502}}\n\n'
ANSWER = b'{"choices": [{"text": "aa"}], "usage": {"completion_tokens": 2}}'


@contextmanager
def answering(status: int, body: bytes, length: int) -> Iterator[Settings]:
    """A server that ends each connection after this answer."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            self.send_header("Content-Length", str(length))
            self.end_headers()
            self.wfile.write(body)

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield Settings(f"http://127.0.0.1:{server.server_port}", "m", 1, 1, (1,), 2, 0, 30, "first")
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("request_name", "status", "body", "missing", "outcome"),
    [
        (STREAMED, 200, EVENT + EVENT + USAGE + DONE, 0, "whole"),
        (STREAMED, 200, EVENT + EVENT + USAGE, 0, "cut"),
        (STREAMED, 200, EVENT, 0, "cut"),
        (STREAMED, 200, EVENT + ERROR, 0, "error_event"),
        (STREAMED, 200, EVENT + ERROR, 9, "error_event"),
        (STREAMED, 200, EVENT + DONE, 0, "cut"),
        (STREAMED, 503, b"{}", 0, "status_503"),
        (WHOLE, 200, ANSWER, 0, "whole"),
        (WHOLE, 200, ANSWER[:20], 44, "cut"),
        (WHOLE, 502, b"{}", 0, "status_502"),
    ],
)
def test_each_outcome(request_name: str, status: int, body: bytes, missing: int, outcome: str) -> None:
    with answering(status, body, len(body) + missing) as settings:
        assert ask(settings, request_name).outcome == outcome


def test_no_connection_is_a_refusal() -> None:
    with answering(200, b"", 0) as settings:
        pass
    assert ask(settings, WHOLE).outcome == "refused"
