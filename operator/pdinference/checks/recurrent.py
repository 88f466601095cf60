"""Warnings about models with a recurrent state (Mamba, linear attention), which KV connectors move in their own ways.

Source: vLLM's issues 52234 and 52627; `NixlBaseConnectorWorker.__init__` in vllm/distributed/kv_transfer; the
connectors without `SupportsHMA`, for which vllm/config/vllm.py disables the hybrid KV cache manager.
"""

from collections.abc import Iterator

from pdinference.api.v1alpha1 import Spec
from pdinference.api.v1alpha1.connectors import LIMITS
from pdinference.api.validation import Problem
from pdinference.checks.pair import variables_of
from pdinference.memory import ModelFacts

_LAYOUT = "VLLM_SSM_CONV_STATE_LAYOUT"
_STATE = "a recurrent state (Mamba, linear attention)"
_UNSPLIT = "spec.mode: Aggregated"


def recurrent_warnings(spec: Spec, facts: ModelFacts | None) -> Iterator[Problem]:
    """Warnings; the canary decides whether such a model gets requests."""
    if facts is None or not facts.recurrent or not spec.transfers_kv:
        return
    connector = spec.transfer.connector
    start = LIMITS[connector].recurrent
    if start == "Refused":
        others = [name for name, limits in LIMITS.items() if limits.recurrent != "Refused"]
        yield Problem(
            "spec.transfer.connector",
            f"The model has {_STATE}. vLLM fails at start with it and {connector}. Use {' or '.join(others)}, or set "
            f"{_UNSPLIT}.",
        )
        return
    required = spec.transfer.verification == "Required"
    remedy = "The canary decides. To avoid the risk, set" if required else "Set Required, or"
    yield Problem(
        "spec.transfer.connector" if required else "spec.transfer.verification",
        f"Models with {_STATE} were reported to answer wrongly after a KV transfer, without an error "
        f"(vLLM issue 52234). {remedy} {_UNSPLIT}.",
    )
    if start == "Layout" and any(variables_of(spec, role).get(_LAYOUT) != "DS" for role in spec.engine_roles):
        yield Problem(
            f"spec.engine.env.{_LAYOUT}",
            f"The model has {_STATE}. With {connector}, vLLM fails at start unless this variable is DS. Set it.",
        )
