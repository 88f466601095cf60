"""What contradicts `spec.router.apiKeys.order`.

Tests: tests/engine/test_queue.py
"""

from collections.abc import Iterator

from pdinference.api.v1alpha1 import Spec
from pdinference.api.validation import Problem
from pdinference.checks.stated_twice import stated_twice
from pdinference.engine.queue import OPTION, queue_options


def queue_problems(spec: Spec) -> Iterator[Problem]:
    """The option beside the field."""
    if queue_options(spec):
        yield from stated_twice(spec, "spec.router.apiKeys.order", [OPTION])
