"""`spec.router.route`: an HTTPRoute of the Gateway API in front of the router's Service.

Tests: tests/api/test_route.py
"""

import math
from typing import Annotated, ClassVar

from pydantic import Field

from pdinference.api.names import GATEWAY_GROUP
from pdinference.api.v1alpha1.base import ApiModel, Matches, NamespaceName, ObjectName, Rule
from pdinference.api.v1alpha1.durations import Duration, milliseconds

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAME = f"{_LABEL}(\\.{_LABEL})*"

Hostname = Annotated[
    str,
    Field(max_length=253),
    Matches(
        rf"^(\*\.)?{_NAME}$", "Write a host name in lower case, for example llm.example.com, or *.example.com for all."
    ),
]

HeaderName = Annotated[
    str,
    Field(max_length=63),
    Matches(
        "^[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?$",
        "Write the name of an HTTP header, for example X-Gateway-Model-Name: letters, digits and dashes.",
    ),
]


class ParentRef(ApiModel):
    """A Gateway that the route attaches to."""

    group: Annotated[
        str,
        Field(max_length=253),
        Matches(f"^({_NAME})?$", f"Write an API group, for example {GATEWAY_GROUP}."),
    ] = GATEWAY_GROUP
    """API group of the parent."""
    kind: Annotated[
        str,
        Field(max_length=63),
        Matches("^[a-zA-Z]([-a-zA-Z0-9]*[a-zA-Z0-9])?$", "Write a kind, for example Gateway."),
    ] = "Gateway"
    """Kind of the parent."""
    namespace: NamespaceName | None = None
    """Namespace of the Gateway. Default: the namespace of the PDInference."""
    name: ObjectName
    """Name of the Gateway."""
    section_name: ObjectName | None = None
    """Name of a listener. Default: all listeners that allow the route."""
    port: Annotated[int | None, Field(ge=1, le=65535)] = None
    """Port of the listeners. Default: any."""


class Timeouts(ApiModel):
    """Timeouts of the Gateway. 0s means no limit."""

    request: Duration | None = None
    """Time for a request, until the end of its stream. Default: that of the Gateway, often shorter than a stream."""
    backend_request: Duration | None = None
    """Time for one attempt of the Gateway to send the request to the router."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!(has(self.request) && has(self.backendRequest)) || duration(self.request) == duration('0s') "
            "|| duration(self.backendRequest) <= duration(self.request)",
            holds=lambda t: milliseconds(t.backend_request) <= (milliseconds(t.request) or math.inf),
            field="backendRequest",
            message="Use at most timeouts.request, which includes all attempts.",
        ),
    )


def _sections_differ(parents: list[ParentRef]) -> bool:
    """Whether references to the same parent all name a listener, and each another one."""
    sections: dict[tuple[str, str, str | None, str], list[str | None]] = {}
    for parent in parents:
        key = (parent.group, parent.kind, parent.namespace, parent.name)
        sections.setdefault(key, []).append(parent.section_name)
    return all(len(named) == 1 or len({*named} - {None}) == len(named) for named in sections.values())


class Route(ApiModel):
    """An HTTPRoute (Gateway API) to the router's Service. It has the name of the PDInference."""

    parent_refs: Annotated[list[ParentRef], Field(min_length=1, max_length=8)]
    """Gateways that the route attaches to."""
    hostnames: Annotated[list[Hostname], Field(max_length=16)] = Field(default_factory=list)
    """Host names that clients use. Default: those of the listeners."""
    model_header: HeaderName | None = None
    """Header in which the Gateway or the client names the model, for example X-Gateway-Model-Name. The route then
    takes only requests for this model or its adapters. Default: all requests."""
    timeouts: Timeouts = Field(default_factory=Timeouts)
    """Timeouts of the Gateway."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            # The Gateway API's own rule. `namespace` is a reserved word in CEL.
            cel="self.parentRefs.all(p, self.parentRefs.exists_one(q, p.group == q.group && p.kind == q.kind "
            "&& p.name == q.name && has(p.__namespace__) == has(q.__namespace__) "
            "&& (!has(p.__namespace__) || p.__namespace__ == q.__namespace__) "
            "&& (!has(p.sectionName) || !has(q.sectionName) || p.sectionName == q.sectionName)))",
            holds=lambda r: _sections_differ(r.parent_refs),
            field="parentRefs",
            message="Write each Gateway once, or write another sectionName in each of its entries.",
        ),
    )
