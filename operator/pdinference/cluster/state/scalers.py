"""From a whole PDScaler to what planning needs of it."""

from collections.abc import Mapping
from typing import Any

from pdinference.api.v1alpha1 import Condition
from pdinference.planning.scale_target import ScalerState

Json = Mapping[str, Any]


def scaler_state(body: Json) -> ScalerState:
    """Of a PDScaler; the CRD bounds all values.

    Raises:
        pydantic.ValidationError: A condition is not as the CRD describes it.
    """
    status = body.get("status") or {}
    return ScalerState(
        recommended=(body.get("spec") or {}).get("replicas"),
        replicas=status.get("replicas", 0),
        selector=status.get("selector", ""),
        revision=status.get("revision", ""),
        baseline_microseconds=status.get("baselineInterTokenMicroseconds"),
        conditions=tuple(Condition.model_validate(condition) for condition in status.get("conditions") or ()),
    )
