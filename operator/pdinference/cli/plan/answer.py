"""All that `pdinference plan` says of a resource: data, for the table and for JSON."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pdinference.api.names import Role
from pdinference.api.v1alpha1 import PDInference
from pdinference.checks.decode_room import MoreRoom, more_room
from pdinference.planning.memory import Inputs, RolePlan, compare
from pdinference.planning.memory.comparison.common_gpus import GPUPlan, common_gpu_plans
from pdinference.planning.memory.comparison.result import Comparison


@dataclass(frozen=True)
class Answer:
    """The plans of a resource and what follows from them."""

    resource: PDInference
    inputs: Inputs
    plans: dict[Role, RolePlan]

    @cached_property
    def common_gpus(self) -> dict[Role, tuple[GPUPlan, ...]]:
        """For each role whose device is not known, its plan on common GPUs."""
        return {role: common_gpu_plans(self.inputs, role, plan) for role, plan in self.plans.items()}

    @cached_property
    def comparison(self) -> Comparison:
        """The same GPUs unsplit."""
        return compare(self.inputs, self.plans)

    @cached_property
    def rooms(self) -> list[MoreRoom]:
        """What would give D more room; empty where it has enough."""
        return more_room(self.inputs, self.plans[Role.DECODE])

    def as_json(self) -> dict[str, Any]:
        """Every number as `{value, source, note}`; bytes where the name says so."""
        roles = {}
        for role, plan in self.plans.items():
            gpus = [each.as_json() for each in self.common_gpus[role]]
            roles[role.value] = {**plan.as_json(), **({"commonGpus": gpus} if gpus else {})}
        return {
            "name": self.resource.metadata.name,
            "namespace": self.resource.metadata.namespace,
            "roles": roles,
            "unsplit": self.comparison.as_json(),
            "moreRoomOnDecode": [room.as_json() for room in self.rooms],
        }
