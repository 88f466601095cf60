"""A resource with each connector."""

from collections.abc import Callable
from typing import Any

from pdinference.api.v1alpha1 import PDInference

Make = Callable[..., PDInference]

SETTINGS: dict[str, dict[str, Any]] = {
    "Nixl": {},
    "Mooncake": {"mooncake": {"protocol": "tcp"}},
    "LMCache": {"lmCache": {"remoteUrl": "lm://lmcache.cache.svc:65432"}},
    "SharedStorage": {"sharedStorage": {"claimName": "kv"}},
}
"""What each needs in `spec.transfer` besides its name."""


def through(resource: Make, connector: str, **spec: Any) -> PDInference:
    """A resource whose KV cache goes through a connector."""
    return resource(transfer={"connector": connector, **SETTINGS[connector]}, **spec)
