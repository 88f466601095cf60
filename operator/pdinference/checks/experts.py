"""Whether `engine.expertBalance` can work with the model and the parallelism of each role.

Tests: tests/checks/test_experts.py
"""

from collections.abc import Iterator
from typing import Final

from pdinference.api.v1alpha1 import Spec
from pdinference.api.validation import Problem
from pdinference.checks.stated_twice import stated_twice
from pdinference.memory import ModelFacts

_FIELD: Final = "spec.engine.expertBalance"
_OPTIONS: Final = frozenset({"enable-eplb", "eplb-config", "num-redundant-experts"})


def expert_balance_problems(spec: Spec, facts: ModelFacts | None) -> Iterator[Problem]:
    """Instances whose devices cannot share the experts out.

    Args:
        spec: The spec.
        facts: The model; None if it is not known.
    """
    balance = spec.engine.expert_balance
    if balance is None:
        return
    yield from stated_twice(spec, _FIELD, _OPTIONS)
    splits = {role: spec.of(role).parallelism for role in spec.engine_roles}
    spread = {role: split for role, split in splits.items() if split.spreads_experts}
    if not spread:
        yield Problem(
            _FIELD,
            "No role spreads experts over several devices. Set parallelism.expert, with data or tensor above 1, or "
            "remove this field.",
        )
    for role in spread:
        if spec.of(role).accelerator.type == "CPU":
            yield Problem(_FIELD, f"vLLM moves experts between GPUs alone, and spec.{role} has CPUs. Remove the field.")
    experts = facts.moe.experts if facts is not None and facts.moe is not None else None
    if experts is None:
        return
    for role, split in spread.items():
        devices, physical = split.expert_devices, experts + balance.redundant
        if missing := -physical % devices:
            yield Problem(
                f"{_FIELD}.redundant",
                f"{experts} experts and {balance.redundant} copies are {physical}, which the {devices} devices of "
                f"spec.{role}.parallelism do not share evenly. Use {balance.redundant + missing}.",
            )
