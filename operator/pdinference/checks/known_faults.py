"""Warnings about releases of vLLM that are known to break the KV transfer of a spec.

Only where the spec names the release: by `engine.version`, or by the image's tag.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pdinference.api.v1alpha1 import Spec
from pdinference.api.v1alpha1.engine import Engine
from pdinference.api.validation import Problem
from pdinference.checks.options import is_official

Version = tuple[int, int, int]

_TAG = re.compile(r"[:-]v?(\d{1,4})\.(\d{1,4})\.(\d{1,4})(?![\d.])[^/]*$", re.ASCII)


@dataclass(frozen=True)
class KnownFault:
    """A fault of some releases.

    Attributes:
        first, last: The releases in which it was seen.
        concerns: Whether a spec can meet it.
        what: What happens, and what to do.
        source: Where it was reported or measured.
    """

    first: Version
    last: Version
    concerns: Callable[[Spec], bool]
    what: str
    source: str


KNOWN_FAULTS = (
    KnownFault(
        (0, 25, 0),
        (0, 25, 1),
        lambda spec: spec.transfer.connector == "Nixl" and spec.rdma is not None,
        "D was seen to end with a segmentation fault at the first transfer after a P pod had restarted. Use a later "
        "release.",
        "github.com/vllm-project/vllm/issues/49238",
    ),
    KnownFault(
        (0, 0, 0),
        (0, 26, 0),
        lambda spec: spec.host_local is not None and is_official(spec.engine.image),
        "With HostLocal, a P that is killed cannot start again while D lives, because D keeps its GPU memory and the "
        "image's NIXL is older than 1.5.0. Use a later release, or an image with NIXL 1.5.0 or 1.5.1.",
        "docs/adr/0029-memory-of-a-dead-peer.md",
    ),
)


def known_faults(spec: Spec) -> Iterator[Problem]:
    """A warning for each fault that is known of the release which a spec names."""
    version = _named_version(spec.engine)
    if version is None or not spec.transfers_kv:
        return
    field = "spec.engine.image" if spec.engine.version is None else "spec.engine.version"
    for fault in KNOWN_FAULTS:
        if fault.first <= version <= fault.last and fault.concerns(spec):
            release = ".".join(map(str, version))
            yield Problem(field, f"vLLM {release} has a known fault. {fault.what} Source: {fault.source}.")


def _named_version(engine: Engine) -> Version | None:
    found = _TAG.search(engine.image if engine.version is None else f":{engine.version}")
    return (int(found[1]), int(found[2]), int(found[3])) if found else None
