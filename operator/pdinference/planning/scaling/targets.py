"""What the HPA of a role aims at: the user's targets, or the preset."""

from typing import Final

from pdinference.api.names import Role
from pdinference.api.v1alpha1.autoscaling import Autoscaling, ScalingTargets
from pdinference.planning.scaling.presets import PRESETS
from pdinference.planning.scaling.signals import Signal

_PREFIX: Final = "pdinference_"
_SHARES_OF_A_POD: Final = ("_load", "kv_demand", "kv_usage")


def targets_milli(role: Role, autoscaling: Autoscaling) -> dict[Signal, int]:
    """How much of each signal one pod is to bear, in thousandths of the signal's unit; empty with metrics alone."""
    if autoscaling.targets is None:
        return {} if autoscaling.metrics else dict(PRESETS[role].targets)
    given = {field: getattr(autoscaling.targets, field) for field in ScalingTargets.model_fields}
    amounts = {Signal(_PREFIX + field): amount for field, amount in given.items() if amount is not None}
    return {signal: amount * _milli(signal) for signal, amount in amounts.items()}


def written(signal: Signal, milli: float) -> str:
    """An amount of a signal as users write its target, with its unit where it has one."""
    amount = milli / _milli(signal)
    return f"{amount:.4g}%" if _is_share(signal) else f"{amount:.4g}"


def label(signal: Signal) -> str:
    """The signal by the name of its field in `autoscaling.targets`."""
    first, *rest = signal.removeprefix(_PREFIX).split("_")
    return first + "".join(part.title() for part in rest)


def signal_of(metric: str) -> Signal | None:
    """The signal that a metric of an HPA, or a trigger of a ScaledObject, is called by; None for others."""
    return _BY_NAME.get(metric)


def _milli(signal: Signal) -> int:
    return 10 if _is_share(signal) else 1000


def _is_share(signal: Signal) -> bool:
    """Whether users write its target in percent of a pod."""
    return signal.endswith(_SHARES_OF_A_POD)


_BY_NAME: Final = {name: signal for signal in Signal for name in (str(signal), label(signal))}
