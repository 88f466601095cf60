"""How far a batch runner is, read from its metrics: only while it runs, and without any right on the API server."""

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from pdinference.api.names import METRIC_BATCH_REQUESTS, RUNNER_METRICS_PORT
from pdinference.planning.batch import Progress

_TIMEOUT = aiohttp.ClientTimeout(total=2)
_LIMIT = 65536  # the runner's metrics are far smaller; whatever else answers there is not read to its end
_OK = 200


async def read_progress(address: str, port: int = RUNNER_METRICS_PORT) -> Progress | None:
    """The counts of the runner in the pod with this address; None when it does not tell."""
    host = f"[{address}]" if ":" in address else address
    try:
        async with (
            aiohttp.ClientSession(timeout=_TIMEOUT) as session,
            session.get(f"http://{host}:{port}/metrics", allow_redirects=False) as answer,
        ):
            if answer.status != _OK:
                return None
            return _parsed((await answer.content.read(_LIMIT)).decode())
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError):
        return None


def _parsed(text: str) -> Progress | None:
    found = {
        sample.labels.get("state"): int(sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == METRIC_BATCH_REQUESTS
    }
    if not found.keys() >= set(Progress._fields):
        return None
    return Progress(**{name: found[name] for name in Progress._fields})
