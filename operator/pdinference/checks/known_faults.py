"""Warnings about releases of vLLM that are known to break the KV transfer of a spec.

Only where the spec names the release: by `engine.version`, or by the image's tag. The faults are those of its
connector (`Connector.known_faults`).
"""

import re
from collections.abc import Iterator

from pdinference.api.v1alpha1 import Spec
from pdinference.api.v1alpha1.engine import Engine
from pdinference.api.validation import Problem
from pdinference.checks.options import is_official
from pdinference.engine.connectors.known_fault import Version
from pdinference.engine.connectors.registry import CONNECTORS

_TAG = re.compile(r"[:-]v?(\d{1,4})\.(\d{1,4})\.(\d{1,4})(?![\d.])[^/]*$", re.ASCII)


def known_faults(spec: Spec) -> Iterator[Problem]:
    """A warning for each fault that is known of the release which a spec names."""
    version = _named_version(spec.engine)
    if version is None or not spec.transfers_kv:
        return
    field = "spec.engine.image" if spec.engine.version is None else "spec.engine.version"
    for fault in CONNECTORS[spec.transfer.connector].known_faults:
        is_of_image = not fault.official or is_official(spec.engine.image)
        if fault.first <= version <= fault.last and is_of_image and fault.concerns(spec):
            release = ".".join(map(str, version))
            yield Problem(field, f"vLLM {release} has a known fault. {fault.what} Source: {fault.source}.")


def _named_version(engine: Engine) -> Version | None:
    found = _TAG.search(engine.image if engine.version is None else f":{engine.version}")
    return (int(found[1]), int(found[2]), int(found[3])) if found else None
