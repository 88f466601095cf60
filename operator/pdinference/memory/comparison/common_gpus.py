"""The plan of a role on common GPUs, where the spec names no product."""

from dataclasses import dataclass, replace

from pdinference.api.names import Role
from pdinference.api.v1alpha1.roles.accelerator import Accelerator
from pdinference.memory.advice import fits
from pdinference.memory.plan import Inputs, RolePlan, plan_role

_NVIDIA = (
    "NVIDIA-L4",
    "NVIDIA-A10",
    "NVIDIA-GeForce-RTX-4090",
    "NVIDIA-A100-SXM4-40GB",
    "NVIDIA-L40S",
    "NVIDIA-A100-SXM4-80GB",
    "NVIDIA-H100-80GB-HBM3",
    "NVIDIA-H200",
    "NVIDIA-B200",
)
_AMD = ("AMD-Instinct-MI210", "AMD-Instinct-MI300X", "AMD-Instinct-MI325X", "AMD-Instinct-MI355X")
_OFFERED = {
    "nvidia.com/gpu": _NVIDIA,
    "nvidia.com/gpu.shared": _NVIDIA,
    "gpu.nvidia.com": _NVIDIA,
    "amd.com/gpu": _AMD,
    "gpu.amd.com": _AMD,
    "habana.ai/gaudi": ("Gaudi2", "Gaudi3"),
}
"""Products by extended resource or DeviceClass; names of partitions, such as MIG slices, are left out."""


@dataclass(frozen=True, slots=True)
class GPUPlan:
    """The plan of a role on one product."""

    product: str
    plan: RolePlan

    @property
    def fits(self) -> bool | None:
        """Whether vLLM can start; None when that is not known."""
        return fits(self.plan)

    def as_json(self) -> dict[str, object]:
        """The product, whether the model fits, and every number as `{value, source, note}`."""
        return {"product": self.product, "fits": self.fits, **self.plan.as_json()}


def common_gpu_plans(inputs: Inputs, role: Role, plan: RolePlan) -> tuple[GPUPlan, ...]:
    """A plan for each common GPU of the spec's vendor; empty if the device is known.

    Args:
        inputs: Inputs of the plan.
        role: P or D.
        plan: The role's plan for the spec.
    """
    own = inputs.spec.of(role)
    nodes = (inputs.spec.of(role, rank) for rank in range(own.parallelism.nodes))
    if plan.memory.known or plan.settings.cpu or any(node.accelerator.products for node in nodes):
        return ()
    return tuple(GPUPlan(product, _on(inputs, role, product)) for product in common_products(own.accelerator))


def common_products(accelerator: Accelerator) -> tuple[str, ...]:
    """Common GPUs that a resource or DeviceClass offers, from small to large; none where it is not known."""
    return _OFFERED.get(accelerator.requested, ())


def _on(inputs: Inputs, role: Role, product: str) -> RolePlan:
    own = inputs.spec.of(role)
    accelerator = own.accelerator.model_copy(update={"products": [product]})
    changed = own.model_copy(update={"accelerator": accelerator})
    return plan_role(replace(inputs, spec=inputs.spec.model_copy(update={role.value: changed})), role)
