"""A plug-in of vLLM that damages KV cache, so that a test can see a faulty transfer on real parts.

vLLM calls `install` in each of its processes (plugin_system.md in its design documents). The files of `FILES` in a
folder of PYTHONPATH are an installed plug-in.
"""

from pathlib import Path
from typing import Any, Final

_DISTRIBUTION: Final = "damaging_plugin-1.dist-info"
FILES: Final = {
    "damaging_plugin.py": Path(__file__).read_text(encoding="utf-8"),
    f"{_DISTRIBUTION}/METADATA": "Metadata-Version: 2.1\nName: damaging-plugin\nVersion: 1\n",
    f"{_DISTRIBUTION}/entry_points.txt": "[vllm.general_plugins]\ndamaging_plugin = damaging_plugin:install\n",
}
"""Contents of its files by path."""


def install() -> None:
    """Let the consumer's NIXL connector zero the KV cache whenever some has arrived."""
    from vllm.distributed.kv_transfer.kv_connector.v1.nixl.base_worker import NixlBaseConnectorWorker  # noqa: PLC0415

    original = NixlBaseConnectorWorker.get_transfer_results

    def damaged(worker: Any) -> Any:
        results = original(worker)
        if results.finished_recving:
            for cache in worker.device_kv_caches.values():
                cache.zero_()
        return results

    NixlBaseConnectorWorker.get_transfer_results = damaged
