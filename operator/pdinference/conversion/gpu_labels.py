"""Node labels by which clouds name GPUs, and the NVIDIA product that each value stands for.

Tests: tests/conversion/test_field_points.py
"""

import re
from collections.abc import Iterator
from typing import Any

from pdinference.api.v1alpha1.roles.accelerator import Accelerator
from pdinference.conversion.launch import Finding, Remark
from pdinference.conversion.values import bytes_quantity
from pdinference.memory.gpus import gpu_memory

PRODUCT: str = Accelerator.model_fields["product_label"].default
_A100_40, _A100_80 = "NVIDIA-A100-SXM4-40GB", "NVIDIA-A100-SXM4-80GB"
_H100, _H200, _B200 = "NVIDIA-H100-80GB-HBM3", "NVIDIA-H200", "NVIDIA-B200"
_RTX_PRO = "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition"
_BY_LABEL = {
    # Google Kubernetes Engine
    "cloud.google.com/gke-accelerator": {
        "nvidia-tesla-p100": "Tesla-P100-PCIE-16GB",
        "nvidia-tesla-v100": "Tesla-V100-SXM2-16GB",
        "nvidia-tesla-t4": "Tesla-T4",
        "nvidia-l4": "NVIDIA-L4",
        "nvidia-tesla-a100": _A100_40,
        "nvidia-a100-80gb": _A100_80,
        "nvidia-h100-80gb": _H100,
        "nvidia-h100-mega-80gb": _H100,
        "nvidia-h200-141gb": _H200,
        "nvidia-b200": _B200,
        "nvidia-gb200": "NVIDIA-GB200",
        "nvidia-rtx-pro-6000": _RTX_PRO,
    },
    # Karpenter on AWS. Its a100 is of 40 or 80 GB, and its v100 of 16 or 32.
    "karpenter.k8s.aws/instance-gpu-name": {
        "a100": "",
        "v100": "",
        "t4": "Tesla-T4",
        "a10g": "NVIDIA-A10G",
        "l4": "NVIDIA-L4",
        "l40s": "NVIDIA-L40S",
        "h100": _H100,
        "h200": _H200,
        "b200": _B200,
        "b300": "NVIDIA-B300",
    },
    # Amazon EKS with the cluster autoscaler. These values do not name the size of a V100 or A100.
    "k8s.amazonaws.com/accelerator": {
        "nvidia-tesla-v100": "",
        "nvidia-tesla-a100": "",
        "nvidia-a100": "",
        "nvidia-tesla-t4": "Tesla-T4",
        "nvidia-tesla-a10g": "NVIDIA-A10G",
        "nvidia-a10g": "NVIDIA-A10G",
        "nvidia-l4": "NVIDIA-L4",
        "nvidia-l40s": "NVIDIA-L40S",
        "nvidia-h100": _H100,
        "nvidia-h200": _H200,
        "nvidia-b200": _B200,
    },
    # CoreWeave
    "gpu.nvidia.com/class": {
        "A40": "NVIDIA-A40",
        "A100_PCIE_80GB": "NVIDIA-A100-80GB-PCIe",
        "A100_NVLINK": _A100_40,
        "A100_NVLINK_80GB": _A100_80,
        "H100_PCIE": "NVIDIA-H100-PCIe",
        "H100_NVLINK_80GB": _H100,
        "H200": _H200,
        "B200": _B200,
        "RTX_A6000": "NVIDIA-RTX-A6000",
    },
}
_INSTANCE_TYPES = frozenset({"node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type"})
_INSTANCES = {
    # AWS
    r"p3\.(2|8|16)xlarge": "Tesla-V100-SXM2-16GB",
    r"p3dn\.24xlarge": "Tesla-V100-SXM2-32GB",
    r"p4d\.24xlarge": _A100_40,
    r"p4de\.24xlarge": _A100_80,
    r"p5\.(4|48)xlarge": _H100,
    r"p5e(n)?\.48xlarge": _H200,
    r"p6-b200\.48xlarge": _B200,
    r"g4dn\.\w+": "Tesla-T4",
    r"g5\.\w+": "NVIDIA-A10G",
    r"g6\.\w+": "NVIDIA-L4",
    r"g6e\.\w+": "NVIDIA-L40S",
    r"g7e\.\w+": _RTX_PRO,
    # Azure
    r"standard_nc\d+as_t4_v3": "Tesla-T4",
    r"standard_nc\d+ads_a100_v4": "NVIDIA-A100-80GB-PCIe",
    r"standard_nc\d+adi?s_h100_v5": "NVIDIA-H100-NVL",
    r"standard_nd96asr_v4": _A100_40,
    r"standard_nd96amsr_a100_v4": _A100_80,
    r"standard_nd96isr_h100_v5": _H100,
    r"standard_nd96isr_h200_v5": _H200,
    # Google Cloud
    r"g2-standard-\d+": "NVIDIA-L4",
    r"a2-highgpu-\w+": _A100_40,
    r"a2-megagpu-\w+": _A100_40,
    r"a2-ultragpu-\w+": _A100_80,
    r"a3-(edge|high|mega)gpu-\w+": _H100,
    r"a3-ultragpu-\w+": _H200,
    r"a4-highgpu-\w+": _B200,
    # Oracle Cloud
    r"bm\.gpu4\.8": _A100_40,
    r"bm\.gpu\.a100-v2\.8": _A100_80,
    r"bm\.gpu\.h100\.8": _H100,
    r"bm\.gpu\.h200\.8": _H200,
    r"bm\.gpu\.b200\.8": _B200,
}
_LABEL = (
    "Pods stay on nodes with this label: accelerator.productLabel names it. accelerator.memory has the size of a GPU "
    "of these nodes for the memory plan."
)
_UNKNOWN_SIZE = (
    "This value does not say how large the GPUs are. Set accelerator.memory of the role for the memory plan."
)


def gpu_settings(labels: dict[str, list[str]]) -> Iterator[Finding]:
    """Fields for the labels of GPUs that nodes must have. Takes these labels out of the map."""
    if products := labels.pop(PRODUCT, None):
        yield "role.accelerator.products", products
        return
    for label in [label for label in labels if label in _BY_LABEL]:
        values = labels.pop(label)
        yield "role.accelerator.products", values
        yield "role.accelerator.productLabel", label
        subject = f"{label}: {', '.join(values)}"
        known = [_BY_LABEL[label].get(value, "") for value in values]
        if all(known):
            yield from _memory(known)
            yield Remark(subject, _LABEL, left_out=False)
        else:
            yield Remark(subject, _UNKNOWN_SIZE, left_out=False)
        return
    yield from _of_instances(labels)


def _of_instances(labels: dict[str, list[str]]) -> Iterator[Finding]:
    """The memory of the GPUs of an instance type. The label stays in the node selector."""
    for label in sorted(_INSTANCE_TYPES & labels.keys()):
        known = [_product_of(value) for value in labels[label]]
        if all(known):
            yield from _memory(known)
            text = f"These nodes have {', '.join(dict.fromkeys(known))}. accelerator.memory has the size of such a GPU."
            yield Remark(f"{label}: {', '.join(labels[label])}", text, left_out=False)


def _product_of(instance: str) -> str:
    name = instance.lower()
    return next((product for form, product in _INSTANCES.items() if re.fullmatch(form, name)), "")


def _memory(products: list[str]) -> Iterator[tuple[str, Any]]:
    sizes = [size for product in products if (size := gpu_memory(product).value) is not None]
    if len(sizes) == len(products):
        yield "role.accelerator.memory", bytes_quantity(int(min(sizes)) // 2**20 * 2**20)
