"""`spec.transfer`: how the KV cache moves from P to D."""

from typing import Literal

from pdinference.api.v1alpha1.base import ApiModel


class Transfer(ApiModel):
    """How the KV cache moves from P to D."""

    connector: Literal["Nixl"] = "Nixl"
    """Nixl: each D pod pulls KV blocks directly from the P pod that computed them."""
