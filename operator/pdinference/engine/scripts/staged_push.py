"""vLLM's push of KV cache for a D whose P has pipeline stages, of which nobody tells D.

P says how many stages it has (`pp_size`), D needs it to wait for every stage, and vllm-router 0.1.17 does not hand it
on. Taken for a single stage, P would be believed after its first layers: a wrong answer.
"""

from typing import Any

from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.v1.nixl import NixlPushConnector


class StagedPushConnector(NixlPushConnector):
    """Adds the number of stages of P, which is the operator's to know, to what D was told of each request."""

    def on_new_request(self, request: Any) -> None:
        """Complete a request on its arrival, before anything reads it.

        Args:
            request: vLLM's request.
        """
        told = request.kv_transfer_params
        if told and told.get("do_remote_prefill"):
            told["pp_size"] = self.kv_transfer_config.kv_connector_extra_config["parameter_stages"]
        super().on_new_request(request)


# A MultiConnector finds the connector behind a statistic by its name.
KVConnectorFactory.register_connector(StagedPushConnector.__name__, __name__, StagedPushConnector.__name__)
