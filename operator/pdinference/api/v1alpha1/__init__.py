"""`pdinference.io/v1alpha1`: pydantic models from which the CRD is generated."""

from pdinference.api.v1alpha1.batch import BatchSpec, BatchStatus, PDBatch
from pdinference.api.v1alpha1.resource import PDInference, Spec
from pdinference.api.v1alpha1.roles.role import RoleSpec
from pdinference.api.v1alpha1.scaler import ScalerSpec, ScalerStatus
from pdinference.api.v1alpha1.status import Condition, PlanStatus, RoleMemory, RolesStatus, RoleStatus, Status

__all__ = [
    "BatchSpec",
    "BatchStatus",
    "Condition",
    "PDBatch",
    "PDInference",
    "PlanStatus",
    "RoleMemory",
    "RoleSpec",
    "RoleStatus",
    "RolesStatus",
    "ScalerSpec",
    "ScalerStatus",
    "Spec",
    "Status",
]
