"""SharedStorage: transfers KV cache from P to D through files on a volume.

vLLM has only an example of such a connector. Both roles run a subclass of it
(engine/scripts/pdinference_shared_files.py).
"""

from typing import Any

from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.api.v1alpha1 import PDInference
from pdinference.api.v1alpha1.engine import EngineOptions
from pdinference.api.v1alpha1.transfer import Transfer
from pdinference.engine.cache_folder import cache_folder
from pdinference.engine.connectors.connector import Connector, SharedVolume
from pdinference.engine.connectors.handover import PromptHandover
from pdinference.engine.connectors.own_class import OwnClass

_MOUNT = "/kv-shared"


class SharedStorage(Connector):
    """A subclass of vLLM's ExampleConnector."""

    vllm_names = ()
    handover = PromptHandover()
    tried = (
        "transfers in this project's tests on CPU, files lost and torn, D restarted, LoRA and preemption included; "
        "not tried on a GPU"
    )

    def own_class(self, resource: PDInference, _role: Role) -> OwnClass:
        """The class, the same for both roles."""
        # The connector may delete all files of this folder.
        folder = f"{_MOUNT}/pdinference/{_folder(resource)}"
        return OwnClass("SharedFilesConnector", "pdinference_shared_files", {"shared_storage_path": folder})

    def options(self) -> dict[str, Any]:
        """No prefix caching or chunked prefill: the connector stores one engine step, from the first token on."""
        return {"enable-prefix-caching": False, "enable-chunked-prefill": False}

    def volume(self, transfer: Transfer) -> SharedVolume | None:
        """The claim in the spec."""
        storage = transfer.shared_storage
        return SharedVolume("kv-shared", storage.claim_name, _MOUNT) if storage else None


def _folder(resource: PDInference) -> str:
    """Name of the folder that P and D share. File names in it contain the adapter."""
    options = {*EngineOptions.model_fields}
    roles = {
        str(role): resource.spec.of(role).model_dump(mode="json", exclude_defaults=True, include=options)
        for role in ENGINE_ROLES
    }
    return cache_folder(resource, roles, ignored=("lora",))
