"""The connectors by their names in `spec.transfer.connector`."""

from collections.abc import Mapping

from pdinference.api.v1alpha1.connectors import ConnectorName
from pdinference.api.v1alpha1.resource import Spec
from pdinference.engine.connectors.connector import Connector
from pdinference.engine.connectors.handover import Handover
from pdinference.engine.connectors.lmcache import LMCache
from pdinference.engine.connectors.mooncake import Mooncake
from pdinference.engine.connectors.nixl import Nixl
from pdinference.engine.connectors.no_transfer import NoTransfer
from pdinference.engine.connectors.shared_storage import SharedStorage

CONNECTORS: dict[ConnectorName, Connector] = {
    "Nixl": Nixl(),
    "Mooncake": Mooncake(),
    "LMCache": LMCache(),
    "SharedStorage": SharedStorage(),
}


_NO_TRANSFER = NoTransfer()


def handovers() -> dict[str, Handover]:
    """The hand-overs of the connectors, by the value of the router's option `--handover`."""
    found = (connector.handover for connector in CONNECTORS.values())
    return {handover.name: handover for handover in found if handover is not None}


def measurable() -> str:
    """The connectors whose transfers `pdinference doctor --bandwidth` measures, for a sentence."""
    return " and ".join(name for name, connector in CONNECTORS.items() if connector.is_measured)


HANDOVERS: Mapping[str, Handover] = handovers()


def connector_of(spec: Spec) -> Connector:
    """The connector of `spec.transfer`, or the one that stands for no transfer."""
    return CONNECTORS[spec.transfer.connector] if spec.transfers_kv else _NO_TRANSFER
