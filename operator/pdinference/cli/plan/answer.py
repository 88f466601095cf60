"""The result of `pdinference plan`, for tables and JSON.

Tests: tests/cli/test_plan_comparison.py, tests/cli/test_plan.py
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pdinference.api.names import Role
from pdinference.api.v1alpha1 import PDInference
from pdinference.checks.decode_room import MoreRoom, more_room
from pdinference.memory import Inputs, RolePlan, compare
from pdinference.memory.comparison.common_gpus import GPUPlan, common_gpu_plans
from pdinference.memory.comparison.result import Comparison
from pdinference.memory.moved import Moved, moved


@dataclass(frozen=True)
class PlanAnswer:
    """The plans of a resource, with comparisons and suggestions."""

    resource: PDInference
    inputs: Inputs
    plans: dict[Role, RolePlan]

    @cached_property
    def common_gpus(self) -> dict[Role, tuple[GPUPlan, ...]]:
        """Plans on common GPUs, for each role without a known device."""
        return {role: common_gpu_plans(self.inputs, role, plan) for role, plan in self.plans.items()}

    @cached_property
    def comparison(self) -> Comparison:
        """The comparison with vLLM without P/D disaggregation on the same GPUs."""
        return compare(self.inputs, self.plans)

    @cached_property
    def rooms(self) -> list[MoreRoom]:
        """Changes that give D more room; empty if it has enough."""
        return more_room(self.inputs, self.plans[Role.DECODE])

    @cached_property
    def moved(self) -> tuple[Moved, ...]:
        """What moves from P to D."""
        return moved(self.inputs, self.plans[Role.DECODE])

    def as_json(self) -> dict[str, Any]:
        """JSON with every number as `{value, source, note}`. Names state the unit if it is bytes."""
        roles = {}
        for role, plan in self.plans.items():
            gpus = [each.as_json() for each in self.common_gpus[role]]
            roles[role.value] = {**plan.as_json(), **({"commonGpus": gpus} if gpus else {})}
        return {
            "name": self.resource.metadata.name,
            "namespace": self.resource.metadata.namespace,
            "roles": roles,
            "movedToDecode": [moved.as_json() for moved in self.moved],
            "unsplit": self.comparison.as_json(),
            "moreRoomOnDecode": [room.as_json() for room in self.rooms],
        }
