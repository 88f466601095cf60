"""`status`: what the operator saw and did."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from pdinference.api.v1alpha1.base import ApiModel


class Condition(ApiModel):
    """One aspect of the state, in the form of metav1.Condition."""

    type: Annotated[str, Field(max_length=316)]
    """Name of the aspect."""
    status: Literal["True", "False", "Unknown"]
    """Whether it holds."""
    reason: Annotated[str, Field(max_length=1024)]
    """Why, in one CamelCase word."""
    message: Annotated[str, Field(max_length=32768)]
    """Why, in plain English, and what to do."""
    last_transition_time: datetime
    """When status last changed."""
    observed_generation: Annotated[int, Field(ge=0)]
    """metadata.generation that this was seen at."""


class RoleStatus(ApiModel):
    """Counts of one role."""

    replicas: int = 0
    """Pods that exist, of the current revision."""
    ready: int = 0
    """Pods that are ready, of the current revision."""
    desired: int = 0
    """Pods that are wanted."""
    summary: str = ""
    """`ready/desired`, for printing."""
    selector: str = ""
    """Label selector of the pods, for the scale subresource."""


class RolesStatus(ApiModel):
    """Counts per role."""

    parameter: RoleStatus = Field(default_factory=RoleStatus)
    """P pods."""
    decode: RoleStatus = Field(default_factory=RoleStatus)
    """D pods."""
    router: RoleStatus = Field(default_factory=RoleStatus)
    """Router pods."""


class Status(ApiModel):
    """What the operator saw and did."""

    observed_generation: Annotated[int, Field(ge=0)] = 0
    """metadata.generation that the operator acted on last."""
    url: str = ""
    """Where clients inside the cluster send requests, less `/v1/...`."""
    revision: str = ""
    """Revision of the P/D pair that the spec asks for."""
    serving_revision: str = ""
    """Revision of the P/D pair that requests go to; differs from revision while a roll-out is under way."""
    roles: RolesStatus = Field(default_factory=RolesStatus)
    """Counts per role."""
    conditions: Annotated[
        list[Condition],
        Field(json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}),
    ] = Field(default_factory=list)
    """Conditions: Ready, ParameterReady, DecodeReady, RouterReady, Progressing."""
