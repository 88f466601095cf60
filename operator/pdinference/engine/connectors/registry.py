"""The connectors by their names in `spec.transfer.connector`."""

from pdinference.api.v1alpha1.connectors import ConnectorName
from pdinference.api.v1alpha1.transfer import Transfer
from pdinference.engine.connectors.connector import Connector
from pdinference.engine.connectors.lmcache import LMCache
from pdinference.engine.connectors.mooncake import Mooncake
from pdinference.engine.connectors.nixl import Nixl
from pdinference.engine.connectors.shared_storage import SharedStorage

CONNECTORS: dict[ConnectorName, Connector] = {
    "Nixl": Nixl(),
    "Mooncake": Mooncake(),
    "LMCache": LMCache(),
    "SharedStorage": SharedStorage(),
}


def connector_of(transfer: Transfer) -> Connector:
    """The connector of `spec.transfer`."""
    return CONNECTORS[transfer.connector]
