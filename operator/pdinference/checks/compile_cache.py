"""Whether `engine.compileCache` can work with what else the spec says.

Tests: tests/engine/test_compile_cache.py
"""

from collections.abc import Iterator
from typing import Final

from pdinference.api.v1alpha1 import Spec
from pdinference.api.validation import Problem
from pdinference.checks.pair import environments
from pdinference.engine.compile_cache import COMPILE_VARIABLES

_FIELD: Final = "spec.engine.compileCache"
_OFF: Final = "VLLM_DISABLE_COMPILE_CACHE"


def compile_cache_problems(spec: Spec) -> Iterator[Problem]:
    """Variables that move compiled code to folders which the pods do not keep, or share with others."""
    if spec.engine.compile_cache is None:
        return
    for field, environment in environments(spec):
        for name in sorted(environment.keys() & {*COMPILE_VARIABLES}):
            yield Problem(f"{field}.{name}", f"With {_FIELD} the operator sets this variable. Remove it.")


def compile_cache_warnings(spec: Spec) -> Iterator[Problem]:
    """Settings with which there is nothing to keep."""
    if spec.engine.compile_cache is None:
        return
    for field, environment in environments(spec):
        off = environment.get(_OFF)
        if isinstance(off, str) and off not in {"", "0"}:
            yield Problem(
                f"{field}.{_OFF}", f"With this variable vLLM compiles at each start, and {_FIELD} has no effect."
            )
    eager = [spec.of(role).enforce_eager for role in spec.engine_roles]
    if all(spec.engine.enforce_eager if own is None else own for own in eager):
        yield Problem(
            _FIELD, "With enforceEager hardly anything is compiled, so starts take as long as without this field."
        )
