"""Sends requests and prints what became of each; runs in a pod, on Python alone.

    python load_client.py URL MODEL SECONDS CLIENTS WORDS TOKENS

Each of so many clients sends one request after another, with so many words in the prompt, for so many tokens. Every
request is a new connection, so that each may reach another router pod.
"""

import json
import sys
import time
import urllib.request
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

PAUSE_SECONDS = 0.2
TIMEOUT_SECONDS = 300


def main(url: str, model: str, seconds: float, amounts: Iterable[int]) -> None:
    """Print a line a request until the time is over."""
    clients, words, tokens = amounts
    end = time.monotonic() + seconds

    def client(name: int) -> None:
        number = 0
        while time.monotonic() < end:
            number += 1
            result = _request(url, model, f"{name}/{number} " * words, tokens)
            # One write a line, so that those of several clients do not mix.
            sys.stdout.write(json.dumps(result) + "\n")
            sys.stdout.flush()
            time.sleep(PAUSE_SECONDS)

    with ThreadPoolExecutor(clients) as pool:
        for done in [pool.submit(client, name) for name in range(clients)]:
            done.result()


def _request(url: str, model: str, prompt: str, tokens: int) -> dict[str, object]:
    payload = {"model": model, "prompt": prompt, "max_tokens": tokens}
    request = urllib.request.Request(  # noqa: S310
        f"{url}/v1/completions", json.dumps(payload).encode(), {"Content-Type": "application/json"}
    )
    start = time.monotonic()
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:  # noqa: S310
            answered = json.loads(response.read())["usage"]["completion_tokens"]
        return {"ok": answered > 0, "seconds": time.monotonic() - start}
    except urllib.error.HTTPError as error:
        return {"ok": False, "seconds": time.monotonic() - start, "error": f"{error.code}: {error.read().decode()}"}
    except (OSError, ValueError, KeyError) as error:
        return {"ok": False, "seconds": time.monotonic() - start, "error": repr(error)}


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]), map(int, sys.argv[4:]))
