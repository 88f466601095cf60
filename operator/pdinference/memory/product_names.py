"""Short names of GPUs, and the values of the product label that they stand for.

Tests: tests/checks/test_product_risks.py, tests/advise/advice/test_options.py
"""

from types import MappingProxyType
from typing import Final

PRODUCTS: Final = MappingProxyType(
    {
        "a10": "NVIDIA-A10",
        "a100": "NVIDIA-A100-SXM4-80GB",
        "a100-40gb": "NVIDIA-A100-SXM4-40GB",
        "a100-80gb": "NVIDIA-A100-SXM4-80GB",
        "a100-pcie": "NVIDIA-A100-80GB-PCIe",
        "a10g": "NVIDIA-A10G",
        "a30": "NVIDIA-A30",
        "a40": "NVIDIA-A40",
        "b200": "NVIDIA-B200",
        "b300": "NVIDIA-B300",
        "gb200": "NVIDIA-GB200",
        "gh200": "NVIDIA-GH200-480GB",
        "h100": "NVIDIA-H100-80GB-HBM3",
        "h100-nvl": "NVIDIA-H100-NVL",
        "h100-pcie": "NVIDIA-H100-PCIe",
        "h20": "NVIDIA-H20",
        "h200": "NVIDIA-H200",
        "h200-nvl": "NVIDIA-H200-NVL",
        "h800": "NVIDIA-H800",
        "l4": "NVIDIA-L4",
        "l20": "NVIDIA-L20",
        "l40": "NVIDIA-L40",
        "l40s": "NVIDIA-L40S",
        "mi300x": "AMD-Instinct-MI300X",
        "mi325x": "AMD-Instinct-MI325X",
        "mi355x": "AMD-Instinct-MI355X",
        "rtx-3090": "NVIDIA-GeForce-RTX-3090",
        "rtx-4090": "NVIDIA-GeForce-RTX-4090",
        "rtx-5090": "NVIDIA-GeForce-RTX-5090",
        "rtx-6000-ada": "NVIDIA-RTX-6000-Ada-Generation",
        "rtx-a6000": "NVIDIA-RTX-A6000",
        "rtx-pro-6000": "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition",
    }
)
"""Value of the product label by short name, as GPU feature discovery and AMD's labeller write it."""

_LABELS: Final = MappingProxyType({label.lower(): label for label in PRODUCTS.values()})
_SHORT: Final = MappingProxyType({label: name.upper() for name, label in reversed(list(PRODUCTS.items()))})
"""The first short name of each label value."""


def short_name(product: str) -> str:
    """The short name of a product, if it has one."""
    return _SHORT.get(product, product)


def meant_by(product: str) -> str | None:
    """The label value that was probably meant by another one: a short name, or the value in another case."""
    key = product.lower().replace("_", "-").replace(" ", "-")
    meant = _LABELS.get(key) or PRODUCTS.get(key.removeprefix("nvidia-").removeprefix("amd-"))
    return None if meant == product else meant
