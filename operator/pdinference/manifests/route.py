"""The HTTPRoute of a Gateway to the router's Service."""

from pdinference.api import names
from pdinference.api.names import Role
from pdinference.api.v1alpha1 import PDInference
from pdinference.manifests.children import child
from pdinference.manifests.pods.placement import as_api
from pdinference.manifests.templates import Manifest


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
        ),
    )
