"""Plays a vLLM pod that answers what no vLLM would, one kind after another; runs in a pod, without other libraries.

python3 hostile_server.py PORT KIND,KIND,...
"""

import gzip
import itertools
import socket
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator

_CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
_OPEN = b"HTTP/1.1 200 OK\r\n\r\n"
_BUCKET = b"vllm:inter_token_latency_seconds_bucket"
_MOST = 2**26
"""Bytes of an answer that has no end."""


def _whole(body: bytes, header: bytes = b"X: y") -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n%s\r\n\r\n%s" % (len(body), header, body)


ANSWERS: dict[str, Callable[[], list[bytes]]] = {
    "missing-le": lambda: [_whole(_BUCKET + b"{} 1\n")],
    "not-a-number": lambda: [_whole(b"vllm:kv_cache_usage_perc NaN\nvllm:num_requests_waiting +Inf\n")],
    "huge": lambda: [_whole(b"vllm:num_requests_waiting 1e308\nvllm:num_requests_running %s\n" % (b"9" * 3000))],
    "binary": lambda: [_whole(b"vllm:num_requests_waiting{a=\xff\x00} 1\n")],
    "long-line": lambda: [_whole(b"vllm:num_requests_waiting{" + b'a="1",' * 350_000 + b"} 1\n")],
    "labels": lambda: [_whole((b"vllm:num_requests_waiting{" + b",".join([b'a=""'] * 127) + b"} 1\n") * 1500)],
    "long-body": lambda: [_OPEN, *[b"# x\n" * 16384] * 128],
    "gzip": lambda: [_whole(gzip.compress(bytes(2**24)), b"Content-Encoding: gzip")],
    "endless-chunks": lambda: [_CHUNKED, *[b"4000\r\n" + b"# x\n" * 4096 + b"\r\n"] * (_MOST // 16384)],
    "small-chunks": lambda: [_CHUNKED, *[b"1\r\n#\r\n" * 4096] * (_MOST // 24576)],
    "continue": lambda: [b"HTTP/1.1 100 Continue\r\n\r\n" * 1000] * 2000,
    "redirect": lambda: [b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:8080/\r\nContent-Length: 0\r\n\r\n"],
    "tarpit": list,
}


def _answer(connection: socket.socket, kind: str) -> None:
    with connection:
        try:
            connection.recv(4096)
            for part in ANSWERS[kind]():
                connection.sendall(part)
            if kind == "tarpit":
                time.sleep(60)
        except OSError:
            return


def main() -> None:
    """Serve for ever."""
    port, kinds = int(sys.argv[1]), sys.argv[2].split(",")
    with socket.create_server(("", port), backlog=64) as server:
        # For each client its own: two that ask in turns would each get every other kind, always the same ones.
        turns: defaultdict[str, Iterator[str]] = defaultdict(lambda: itertools.cycle(kinds))
        while True:
            connection, (client, _) = server.accept()
            threading.Thread(target=_answer, args=(connection, next(turns[client])), daemon=True).start()


if __name__ == "__main__":
    main()
