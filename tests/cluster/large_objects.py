"""Objects of any size and depth, for tests of their limits."""

import json
from typing import Any


def deep(levels: int, opening: str = '{"a":', closing: str = "}") -> str:
    return opening * levels + "1" + closing * levels


def body(spec: str, **metadata: Any) -> bytes:
    """As the API server writes it."""
    known = {"name": "llama", "namespace": "ns", "uid": "u", "resourceVersion": "7", "generation": 2, **metadata}
    return b'{"kind":"PDInference","metadata":%b,"spec":%b,"status":{"phase":"Ready"}}' % (
        json.dumps(known).encode(),
        spec.encode(),
    )
