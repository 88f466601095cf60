"""The order in which vLLM takes waiting requests (vllm/v1/core/sched/request_queue.py).

Tests: tests/engine/test_queue.py
"""

from typing import Any, Final

from pdinference.api.v1alpha1 import Spec

OPTION: Final = "scheduling-policy"


def queue_options(spec: Spec) -> dict[str, Any]:
    """vLLM's option with which it takes requests in the order that the router gives them."""
    keys = spec.router.api_keys
    return {OPTION: "priority"} if keys is not None and keys.shares_fairly else {}
