"""Ports and annotations that a connector needs on pods."""

from typing import Any

from pdinference.api import names
from pdinference.api.names import Role
from pdinference.api.v1alpha1.transfer import Transfer

Fields = dict[str, Any]

_BOOTSTRAP_PORT_ANNOTATION = "vllm.ai/bootstrap-port"
"""By which vllm-router learns, from a P pod, where its Mooncake bootstrap server listens (vllm-router 0.1.17)."""


def transfer_ports(transfer: Transfer, role: Role) -> list[Fields]:
    """The ports that a role's pods announce for the connector."""
    if transfer.connector == "Nixl":
        return [_port(names.SIDE_CHANNEL_PORT_NAME, names.SIDE_CHANNEL_PORT)]
    return router_ports(transfer, role)


def router_ports(transfer: Transfer, role: Role) -> list[Fields]:
    """Those of them that the router calls, too."""
    if transfer.connector == "Mooncake" and role is Role.PARAMETER:
        return [_port(names.MOONCAKE_BOOTSTRAP_PORT_NAME, names.MOONCAKE_BOOTSTRAP_PORT)]
    return []


def transfer_annotations(transfer: Transfer, role: Role) -> dict[str, str]:
    """The annotations on a role's pods."""
    if not router_ports(transfer, role):
        return {}
    return {_BOOTSTRAP_PORT_ANNOTATION: str(names.MOONCAKE_BOOTSTRAP_PORT)}


def _port(name: str, number: int) -> Fields:
    return {"name": name, "containerPort": number, "protocol": "TCP"}
