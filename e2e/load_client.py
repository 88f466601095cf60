"""Sends requests one after another and prints what became of each; runs in a pod, on Python alone.

    python load_client.py URL MODEL SECONDS

Every request is a new connection, as many clients would make, so that each may reach another router pod.
"""

import json
import sys
import time
import urllib.request

PAUSE_SECONDS = 0.2
TIMEOUT_SECONDS = 60


def main(url: str, model: str, seconds: float) -> None:
    """Print a line a request until the time is over."""
    end = time.monotonic() + seconds
    number = 0
    while time.monotonic() < end:
        number += 1
        print(json.dumps(_request(url, model, number)), flush=True)  # noqa: T201
        time.sleep(PAUSE_SECONDS)


def _request(url: str, model: str, number: int) -> dict[str, object]:
    # Long enough for several KV blocks, and different each time, so that nothing comes from a prefix cache.
    payload = {"model": model, "prompt": f"{number} " * 130, "max_tokens": 48}
    request = urllib.request.Request(  # noqa: S310
        f"{url}/v1/completions", json.dumps(payload).encode(), {"Content-Type": "application/json"}
    )
    start = time.monotonic()
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:  # noqa: S310
            tokens = json.loads(response.read())["usage"]["completion_tokens"]
        return {"ok": tokens > 0, "seconds": time.monotonic() - start}
    except urllib.error.HTTPError as error:
        return {"ok": False, "seconds": time.monotonic() - start, "error": f"{error.code}: {error.read().decode()}"}
    except (OSError, ValueError, KeyError) as error:
        return {"ok": False, "seconds": time.monotonic() - start, "error": repr(error)}


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
