"""What the oldest Kubernetes that we support lacks. `make test-integration KUBERNETES=1.30` passes without it."""

from typing import Final

import pytest

from e2e.cluster import build
from pdinference.cluster.errors import ApiError

needs_claims = pytest.mark.skipif(build.oldest(), reason="this Kubernetes has no dynamic resource allocation v1")
needs_image_volumes = pytest.mark.skipif(build.oldest(), reason="this Kubernetes has no image volumes")
_LATER_FIELDS: Final = (".image", ".tolerance")
"""Of volumes, and of the scaling rules of an HPA."""
ADMITTED_PODS = frozenset({"probe-host", "socket-host", "hook-host"}) if build.oldest() else frozenset()
"""Bad pods of tests/manifests/confined_pods.py that Pod Security refuses in later ones."""

LISTS_SOON = ("--resync-seconds=5",) if build.oldest() else ()
"""Flags for an operator that is to see that a CRD was deleted. It does at its next list, because the oldest Kubernetes
does not end the watches of the kind, and admits objects while it is being deleted."""


def lacks_field(error: ApiError) -> bool:
    """Whether this Kubernetes refuses an object for a field that only later ones have."""
    return build.oldest() and error.undeclared and error.message.rpartition(":")[0].endswith(_LATER_FIELDS)
