"""Sends requests and prints when each begins and ends; runs in a pod, on Python alone.

    python load_client.py URL MODEL SECONDS CLIENTS WORDS TOKENS DEADLINE

Each of so many clients sends one request after another, with so many words in the prompt, for exactly so many tokens,
which are streamed. Every request is a new connection, so that each may reach another router pod. A request that takes
longer than the deadline in seconds has failed. After SIGTERM no request begins, and those under way end.
"""

import http.client
import json
import signal
import sys
import threading
import time
import urllib.request
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

PAUSE_SECONDS = 0.2


def main(url: str, model: str, seconds: float, amounts: Iterable[int], deadline: float) -> None:
    """Print a line when a request begins and one when it ends, until the time is over or SIGTERM comes."""
    clients, words, tokens = amounts
    end = time.monotonic() + seconds
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())

    def client(name: int) -> None:
        number = 0
        while time.monotonic() < end and not stopped.is_set():
            number += 1
            request = f"{name}/{number}"
            _print({"request": request, "event": "began", "at": time.monotonic()})
            start = time.monotonic()
            error = _error(url, model, f"{request} " * words, tokens, deadline)
            now = time.monotonic()
            _print({"request": request, "event": "ended", "at": now, "seconds": now - start, "error": error})
            stopped.wait(PAUSE_SECONDS)

    with ThreadPoolExecutor(clients) as pool:
        for done in [pool.submit(client, name) for name in range(clients)]:
            done.result()


def _print(line: dict[str, object]) -> None:
    """One write a line, so that those of several clients do not mix."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def _error(url: str, model: str, prompt: str, tokens: int, deadline: float) -> str:
    """What is wrong with an answer; empty when it is whole and in time."""
    payload = {"model": model, "prompt": prompt, "max_tokens": tokens, "ignore_eos": True}
    payload |= {"stream": True, "stream_options": {"include_usage": True}}
    request = urllib.request.Request(  # noqa: S310
        f"{url}/v1/completions", json.dumps(payload).encode(), {"Content-Type": "application/json"}
    )
    latest = time.monotonic() + deadline
    got, whole = 0, False
    try:
        with urllib.request.urlopen(request, timeout=deadline) as response:  # noqa: S310
            for line in response:  # the time-out above is of each read
                if time.monotonic() > latest:
                    return f"not whole after {deadline:.0f} s: {got} of {tokens} tokens"
                data = line.removeprefix(b"data:").strip()
                whole |= data == b"[DONE]"
                if data.startswith(b"{"):
                    got = (json.loads(data).get("usage") or {}).get("completion_tokens", got)
    except urllib.error.HTTPError as error:
        return f"{error.code}: {error.read().decode(errors='replace')}"
    except (OSError, ValueError, http.client.HTTPException) as error:
        return repr(error)
    return "" if whole and got == tokens else f"cut off: {got} of {tokens} tokens, {whole=}"


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]), map(int, sys.argv[4:7]), float(sys.argv[7]))
