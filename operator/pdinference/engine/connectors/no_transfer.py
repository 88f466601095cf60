"""The connector of a resource without P: nothing is transferred.

Tests: tests/manifests/test_mode.py
"""

from typing import Any

from pdinference.api.names import Role
from pdinference.api.v1alpha1 import PDInference
from pdinference.engine.connectors.connector import Connector


class NoTransfer(Connector):
    """No connector, so vLLM gets no `--kv-transfer-config` for one, and the router sends whole requests to D."""

    vllm_names = ()
    handover = None
    tried = ""

    def config(self, _resource: PDInference, _role: Role) -> dict[str, Any]:
        """Nothing."""
        return {}
