"""Speeds of a KV transfer in GB/s: those that were measured between two H200s of one host, and limits.

benchmarks/results/kv-transfer.md has the measurements. RDMA was not measured.

Tests: tests/planning/test_transfer_measurements.py, tests/checks/test_path_risks.py
"""

from typing import Final

GIGA: Final = 1e9

TCP_OF_VLLM: Final = 2.6
"""TCP between two pods, all transfers of vLLM together."""
TCP_PULL: Final = 3.2
"""TCP between two pods, NIXL alone, when D pulls."""
TCP_PUSH: Final = 4.4
"""The same, when P pushes."""
NVLINK_PULL: Final = 66.0
"""NVLink within a pod, when D pulls."""
NVLINK_PUSH: Final = 83.0
"""The same, when P pushes."""
CPU: Final = 0.8
"""TCP between CPUs on two busy cores, in both directions."""

TCP_TEXT: Final = f"{TCP_OF_VLLM:g} to {TCP_PULL:g} GB/s"
"""TCP between two pods with GPUs, in messages."""

FASTEST_TCP: Final = 5.0
"""TCP of one rank is not faster than this."""
SLOW_TCP: Final = 1.0
"""TCP between two pods with GPUs is slow below this."""
SLOW_DIRECT: Final = FASTEST_TCP
"""RDMA and NVLink of one rank are slow below this: no faster than TCP."""
