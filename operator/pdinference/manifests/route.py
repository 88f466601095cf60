"""The HTTPRoute of a Gateway to the router's Service."""

from typing import Final

from pdinference.api import names
from pdinference.api.names import Role
from pdinference.api.v1alpha1 import PDInference
from pdinference.engine.vllm import model_names
from pdinference.manifests.children import child
from pdinference.manifests.pods.placement import as_api
from pdinference.manifests.templates import Manifest

_ALL_PATHS: Final[Manifest] = {"path": {"type": "PathPrefix", "value": "/"}}
"""The router itself refuses the paths that it does not serve."""
_MATCHES_PER_RULE: Final = 64
"""As many as the Gateway API allows. A model and all its adapters may need one more."""


def http_routes(resource: PDInference) -> tuple[Manifest, ...]:
    """The HTTPRoute, if `router.route` is set."""
    router = resource.spec.router
    if router.route is None:
        return ()
    return (
        child(
            resource,
            Role.ROUTER,
            "router-httproute",
            object=names.router_service(resource.metadata.name),
            route=as_api(router.route),
            port=router.port,
            rules=_rules(resource, router.route.model_header),
        ),
    )


def _rules(resource: PDInference, model_header: str | None) -> list[list[Manifest]]:
    """The matches of each rule: requests for any of the model's names if the header is known, else all requests."""
    if model_header is None:
        return [[_ALL_PATHS]]
    matches = [
        {**_ALL_PATHS, "headers": [{"type": "Exact", "name": model_header, "value": name}]}
        for name in model_names(resource)
    ]
    return [matches[start : start + _MATCHES_PER_RULE] for start in range(0, len(matches), _MATCHES_PER_RULE)]
