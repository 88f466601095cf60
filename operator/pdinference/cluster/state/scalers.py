"""State of a PDScaler.

Tests: tests/cluster/test_scalers.py
"""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from pdinference.api.v1alpha1 import Condition
from pdinference.planning.scale_target import ScalerState

Json = Mapping[str, Any]


def scaler_state(body: Json) -> ScalerState:
    """State of a PDScaler. The CRD limits all values."""
    status = body.get("status") or {}
    return ScalerState(
        recommended=(body.get("spec") or {}).get("replicas"),
        replicas=status.get("replicas", 0),
        selector=status.get("selector", ""),
        revision=status.get("revision", ""),
        baseline_microseconds=status.get("baselineInterTokenMicroseconds"),
        conditions=tuple(_conditions(status)),
    )


def _conditions(status: Json) -> list[Condition]:
    """The conditions as last reported; none if one does not parse. The CRD allows times that have no `datetime`."""
    try:
        return [Condition.model_validate(condition, extra="ignore") for condition in status.get("conditions") or ()]
    except ValidationError:
        return []
