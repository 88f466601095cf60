"""The targets of a role's HPA: those of the spec, or the preset.

Tests: tests/manifests/test_autoscaler.py, tests/planning/scaling/test_condition.py
"""

from typing import Final

from pydantic.alias_generators import to_camel

from pdinference.api.names import Role
from pdinference.api.v1alpha1.autoscaling import Autoscaling, ScalingTargets
from pdinference.planning.scaling.presets import PRESETS
from pdinference.planning.scaling.signals import Signal

_PREFIX: Final = "pdinference_"
_SHARES_OF_A_POD: Final = ("_load", "kv_demand", "kv_usage")


def targets_milli(role: Role, autoscaling: Autoscaling) -> dict[Signal, int]:
    """Target of each signal per pod, in thousandths of its unit; empty if the spec has only `metrics`."""
    if autoscaling.targets is None:
        return {} if autoscaling.metrics else dict(PRESETS[role].targets)
    given = {field: getattr(autoscaling.targets, field) for field in ScalingTargets.model_fields}
    amounts = {Signal(_PREFIX + field): amount for field, amount in given.items() if amount is not None}
    return {signal: amount * _milli(signal) for signal, amount in amounts.items()}


def written(signal: Signal, milli: float) -> str:
    """An amount of a signal in the format of its target in the spec, with its unit."""
    amount = milli / _milli(signal)
    return f"{amount:.4g}%" if _is_share(signal) else f"{amount:.4g}"


def label(signal: Signal) -> str:
    """The name of the signal's field in `autoscaling.targets`."""
    return to_camel(signal.removeprefix(_PREFIX))


def signal_of(metric: str) -> Signal | None:
    """The signal with the name of an HPA's metric or a ScaledObject's trigger; None for other metrics."""
    return _BY_NAME.get(metric)


def _milli(signal: Signal) -> int:
    return 10 if _is_share(signal) else 1000


def _is_share(signal: Signal) -> bool:
    """Whether its target in the spec is a percentage of a pod."""
    return signal.endswith(_SHARES_OF_A_POD)


_BY_NAME: Final = {name: signal for signal in Signal for name in (str(signal), label(signal))}
