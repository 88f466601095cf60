"""What contradicts `spec.traces`.

Tests: tests/engine/test_traces.py
"""

from collections.abc import Iterator
from typing import Final

from pdinference.api.v1alpha1 import Spec
from pdinference.api.v1alpha1.traces import OPTION
from pdinference.api.validation import Problem
from pdinference.checks.stated_twice import stated_twice

_FIELD: Final = "spec.traces"
_PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")


def traces_problems(spec: Spec) -> Iterator[Problem]:
    """The option beside the field, and variables with which vLLM would send spans by another protocol."""
    if spec.traces is None:
        return
    yield from stated_twice(spec, _FIELD, [OPTION])
    for part, env in (("engine", spec.engine.env), *((role, spec.of(role).env) for role in spec.engine_roles)):
        for name in _PROTOCOLS:
            if name in env:
                yield Problem(
                    f"spec.{part}.env.{name}", f"With {_FIELD} vLLM sends OTLP over HTTP, as the router. Remove it."
                )
