"""Specs that cannot have the path HostLocal, each with the field that is wrong then."""

from typing import Any

Json = dict[str, Any]

_SHARED: Json = {"transfer": {"hostLocal": {}}}
_CLAIM: Json = {"accelerator": {"devices": {"deviceClassName": "gpu.nvidia.com"}}}

WRONG_PATHS: list[tuple[Json, str]] = [
    ({"transfer": {"path": "HostLocal", "connector": "Mooncake"}}, "transfer.connector"),
    ({"transfer": {"path": "HostLocal", "rdma": {"resourceName": "rdma/ib"}}}, "transfer.rdma"),
    ({**_SHARED, "parameter": {"parallelism": {"pipeline": 2, "nodes": 2}}}, "transfer.path"),
    ({**_SHARED, "parameter": {"parallelism": {"pipeline": 2}}}, "transfer.path"),
    ({**_SHARED, "parameter": {"parallelism": {"data": 2}}}, "transfer.path"),
    ({**_SHARED, "decode": {"parallelism": {"data": 2}}}, "transfer.path"),
    ({**_SHARED, "decode": {"accelerator": {"type": "CPU"}}}, "decode.accelerator"),
    ({**_SHARED, "decode": {"accelerator": {"resourceName": "amd.com/gpu"}}}, "decode.accelerator"),
    ({**_SHARED, "decode": _CLAIM}, "decode.accelerator"),
    ({**_SHARED, "decode": {"accelerator": {"products": ["NVIDIA-L4"]}}}, "decode.accelerator"),
    ({**_SHARED, "decode": {"kvTiers": {"cpu": {"size": "1Gi"}}}}, "transfer.path"),
]
