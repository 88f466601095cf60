"""Batch sizes that vLLM rejects at start (`verify_max_model_len` in vllm/config/scheduler.py).

Tests: tests/checks/test_examine.py
"""

from collections.abc import Iterator

from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.api.v1alpha1 import Spec
from pdinference.api.v1alpha1.defaults import chunked_prefill
from pdinference.api.validation import Problem


def batch_problems(spec: Spec) -> Iterator[Problem]:
    """Problems of maxNumBatchedTokens in relation to the other sizes."""
    for role in ENGINE_ROLES:
        yield from _of_role(spec, role)


def _of_role(spec: Spec, role: Role) -> Iterator[Problem]:
    own, engine = spec.of(role), spec.engine
    tokens = own.max_num_batched_tokens or engine.max_num_batched_tokens
    if tokens is None:
        return
    where = f"spec.{role}" if own.max_num_batched_tokens else "spec.engine"
    requests = own.max_num_seqs or engine.max_num_seqs
    if requests is not None and tokens < requests:
        yield Problem(
            f"{where}.maxNumBatchedTokens",
            f"{tokens} is less than maxNumSeqs ({requests}), but a step has at least one token of each request. Raise "
            "it, or lower maxNumSeqs.",
        )
    longest = spec.model.max_model_length
    if chunked_prefill(spec, role) is False and longest is not None and tokens < longest:
        yield Problem(
            f"{where}.maxNumBatchedTokens",
            f"{tokens} is less than spec.model.maxModelLength ({longest}), but without chunked prefill vLLM prefills a "
            "prompt in one step. Raise it, lower maxModelLength, or set enableChunkedPrefill: true.",
        )
