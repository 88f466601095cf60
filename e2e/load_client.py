"""Sends requests and prints when each begins and ends; runs in a pod, on Python alone.

    python load_client.py SETTINGS [REQUEST...]

Each of so many clients sends one request after another, of each kind in turn: chat and completions, streamed and not,
with each length of prompt. Every request is a new connection, so that each may reach another router pod. After SIGTERM
no request begins, and those under way end.

With names of requests, it sends only these again. They share no KV cache with the first ones.
"""

import hashlib
import http.client
import json
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from typing import Any
from urllib.parse import urlsplit

_OK = 200


@dataclass(frozen=True)
class Settings:
    """What is sent.

    Attributes:
        url: The router.
        model: Name of the model.
        seconds: When the last request begins.
        clients: Requests at a time.
        words: Lengths of prompts.
        tokens: Length of an answer.
        pause: Seconds between an answer and the client's next request.
        deadline: Seconds after which a request has failed.
        first: How all prompts begin, so that none is in a prefix cache.
    """

    url: str
    model: str
    seconds: float
    clients: int
    words: Sequence[int]
    tokens: int
    pause: float
    deadline: float
    first: str


@dataclass
class Result:
    """How a request ended.

    Attributes:
        outcome: `whole`, or how it failed: `refused` (no connection), `lost` (no response), `status_502` etc.,
            `error_event` (the stream ends with an error in OpenAI's form), `cut` (it ends without one), `late`.
        detail: What else is known of a failure.
        tokens: Number of tokens, which the end of an answer says.
        prefill: The role that computed the prompt, as the router says.
        parts: The generated text as it came.
    """

    outcome: str = "cut"
    detail: str = ""
    tokens: int = 0
    prefill: str = ""
    parts: list[str] = field(default_factory=list)

    def line(self) -> dict[str, object]:
        """For the log."""
        error = "" if self.outcome == "whole" else f"{self.outcome} after {len(self.parts)} parts: {self.detail}"
        text = hashlib.sha256("".join(self.parts).encode()).hexdigest()[:12]
        return {"outcome": self.outcome, "error": error, "text": text, "prefill": self.prefill}


def main(settings: Settings) -> None:
    """Print a line when a request begins and one when it ends, until the time is over or SIGTERM comes.

    It ends at the second SIGTERM, so that requests can be sent again from this pod.
    """
    end = time.monotonic() + settings.seconds
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())

    def client(name: int) -> None:
        number = 0
        while time.monotonic() < end and not stopped.is_set():
            number += 1
            _send(settings, f"{name}/{number}")
            stopped.wait(settings.pause)

    with ThreadPoolExecutor(settings.clients) as pool:
        for done in [pool.submit(client, name) for name in range(settings.clients)]:
            done.result()
    signal.pause()


def _send(settings: Settings, request: str, salt: str = "") -> None:
    _print({"request": request, "event": "began", "at": time.monotonic()})
    start = time.monotonic()
    result = ask(settings, request, salt)
    now = time.monotonic()
    _print({"request": request, "event": "ended", "at": now, "seconds": now - start, **result.line()})


def _print(line: dict[str, object]) -> None:
    """One write a line, so that those of several clients do not mix."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def _payload(settings: Settings, request: str, salt: str) -> tuple[str, dict[str, Any]]:
    """Path and body of a request, which follow from its name."""
    kinds = list(product(("/v1/completions", "/v1/chat/completions"), (True, False), settings.words))
    client, number = map(int, request.split("/"))
    path, stream, words = kinds[(client + number) % len(kinds)]
    prompt = f"{settings.first} " + f"{request} " * words
    body: dict[str, Any] = {"model": settings.model, "max_tokens": settings.tokens, "ignore_eos": True}
    body |= {"temperature": 0, "skip_special_tokens": False, "stream": stream} | ({"cache_salt": salt} if salt else {})
    body |= {"stream_options": {"include_usage": True}} if stream else {}
    return path, body | (
        {"prompt": prompt} if path == "/v1/completions" else {"messages": [{"role": "user", "content": prompt}]}
    )


@cache
def _address(host: str) -> str:
    """The address of a Service, which stays. On a busy machine, the cluster's DNS does not always answer."""
    return socket.gethostbyname(host)


def ask(settings: Settings, request: str, salt: str = "") -> Result:
    """Send a request and judge its answer."""
    path, body = _payload(settings, request, salt)
    result = Result("refused")
    router = urlsplit(settings.url)
    latest = time.monotonic() + settings.deadline
    try:
        address = _address(router.hostname or "")
    except OSError as error:
        return Result("refused", repr(error))
    connection = http.client.HTTPConnection(address, router.port, timeout=settings.deadline)
    try:
        connection.connect()
        result.outcome = "lost"
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        result.prefill = response.headers.get("X-PDInference-Prefill", "")
        if response.status != _OK:
            result.outcome, result.detail = f"status_{response.status}", response.read().decode(errors="replace")
            return result
        result.outcome = "cut"
        whole = _streamed(response, result, latest) if body["stream"] else _read(response, result)
        if whole and result.tokens == settings.tokens:
            result.outcome = "whole"
        if time.monotonic() > latest:
            result.outcome = "late"
    except (OSError, ValueError, http.client.HTTPException) as error:
        result.detail = repr(error)
        if isinstance(error, TimeoutError):
            result.outcome = "late"
    finally:
        connection.close()
    return result


def _read(response: http.client.HTTPResponse, result: Result) -> bool:
    """Read an answer in one piece."""
    _take(json.loads(response.read()), result)
    return True


def _streamed(response: http.client.HTTPResponse, result: Result, latest: float) -> bool:
    """Read a stream; whether it says that it is complete."""
    for line in response:
        data = line.removeprefix(b"data:").strip()
        if data == b"[DONE]":
            return True
        if data.startswith(b"{"):
            event = json.loads(data)
            if isinstance(event.get("error"), dict) and event["error"].get("message"):
                result.outcome, result.detail = "error_event", event["error"]["message"]
                return False
            _take(event, result)
        if time.monotonic() > latest:
            break
    return False


def _take(answer: Mapping[str, Any], result: Result) -> None:
    for choice in answer.get("choices") or ():
        part = choice.get("delta") or choice.get("message") or {}
        result.parts.append(choice.get("text") or part.get("content") or "")
    result.tokens = (answer.get("usage") or {}).get("completion_tokens", result.tokens)


def again(settings: Settings, requests: Sequence[str]) -> None:
    """Send these requests again."""
    with ThreadPoolExecutor(settings.clients) as pool:
        list(pool.map(lambda request: _send(settings, request, salt="again"), requests))


if __name__ == "__main__":
    found = Settings(**json.loads(sys.argv[1]))
    if sys.argv[2:]:
        again(found, sys.argv[2:])
    else:
        main(found)
