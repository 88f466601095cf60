"""Peak rates of accelerators by the value of their product label, from the vendors' data sheets: dense, no sparsity.

Tests: tests/performance/test_step.py
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True, slots=True)
class Device:
    """One accelerator.

    Attributes:
        flops: Floating-point operations a second of matrix products in 16 bits.
        flops8: The same in FP8; equal to `flops` where the device has none.
        bandwidth: Bytes a second of its memory.
        links: Bytes a second between devices of one host, in one direction (NVLink, xGMI, PCIe).
    """

    flops: float
    flops8: float
    bandwidth: float
    links: float


_T, _G = 1e12, 1e9
_PCIE4, _PCIE5 = 25 * _G, 50 * _G


def _device(flops: float, flops8: float, bandwidth: float, links: float) -> Device:
    return Device(flops * _T, flops8 * _T, bandwidth * _G, links)


_H100 = _device(989.4, 1978.9, 3352, 450 * _G)
_H200 = _device(989.4, 1978.9, 4800, 450 * _G)
_A100_80 = _device(312, 312, 2039, 300 * _G)
_MI300X = _device(1307.4, 2614.9, 5300, 448 * _G)
_MI325X = _device(1307.4, 2614.9, 6000, 448 * _G)

DEVICES: Final[Mapping[str, Device]] = MappingProxyType(
    {
        "nvidia-a100-sxm4-80gb": _A100_80,
        "nvidia-a100-80gb-pcie": _device(312, 312, 1935, _PCIE4),
        "nvidia-a100-pcie-80gb": _device(312, 312, 1935, _PCIE4),
        "nvidia-a100-sxm4-40gb": _device(312, 312, 1555, 300 * _G),
        "nvidia-a100-pcie-40gb": _device(312, 312, 1555, _PCIE4),
        "nvidia-a800-sxm4-80gb": _device(312, 312, 2039, 200 * _G),
        "nvidia-a40": _device(149.7, 149.7, 696, _PCIE4),
        "nvidia-a30": _device(165, 165, 933, _PCIE4),
        "nvidia-a10": _device(125, 125, 600, _PCIE4),
        "nvidia-a10g": _device(70, 70, 600, _PCIE4),
        "nvidia-b200": _device(2250, 4500, 7700, 900 * _G),
        "nvidia-b300": _device(2250, 4500, 7700, 900 * _G),
        "nvidia-b300-sxm6-ac": _device(2250, 4500, 7700, 900 * _G),
        "nvidia-gb200": _device(2500, 5000, 8000, 900 * _G),
        "nvidia-gh200-480gb": _device(989.4, 1978.9, 4000, 450 * _G),
        "nvidia-h100-80gb-hbm3": _H100,
        "nvidia-h100-pcie": _device(756, 1513, 2039, _PCIE5),
        "nvidia-h100-nvl": _device(835, 1671, 3938, 300 * _G),
        "nvidia-h200": _H200,
        "nvidia-h200-nvl": _device(835, 1671, 4800, 450 * _G),
        "nvidia-h20": _device(148, 296, 4000, 450 * _G),
        "nvidia-h800": _device(989.4, 1978.9, 3352, 200 * _G),
        "nvidia-l4": _device(121, 242.5, 300, _PCIE4),
        "nvidia-l20": _device(119.5, 239, 864, _PCIE4),
        "nvidia-l40": _device(181, 362, 864, _PCIE4),
        "nvidia-l40s": _device(362, 733, 864, _PCIE4),
        "nvidia-rtx-a6000": _device(154.8, 154.8, 768, _PCIE4),
        "nvidia-rtx-6000-ada-generation": _device(364, 728, 960, _PCIE4),
        "nvidia-rtx-pro-6000-blackwell-server-edition": _device(503, 1007, 1597, _PCIE5),
        "nvidia-geforce-rtx-3090": _device(71, 71, 936, _PCIE4),
        "nvidia-geforce-rtx-4090": _device(165.2, 330.3, 1008, _PCIE4),
        "nvidia-geforce-rtx-5090": _device(209.5, 419, 1792, _PCIE5),
        "amd-instinct-mi300x": _MI300X,
        "amd-instinct-mi300x-oam": _MI300X,
        "mi300x": _MI300X,
        "amd-instinct-mi325x": _MI325X,
        "amd-instinct-mi325x-oam": _MI325X,
        "mi325x": _MI325X,
        "amd-instinct-mi355x": _device(2516.6, 5033.2, 8000, 538 * _G),
    }
)
"""By product, in the spelling of `memory/gpus.py`."""


def device_key(product: str) -> str:
    """The spelling of a product in tables: lower case, hyphens, without the suffix of time-slicing."""
    return product.lower().replace("_", "-").removesuffix("-shared")


def device_of(product: str) -> Device | None:
    """The peak rates of a product; None where they are not known."""
    return DEVICES.get(device_key(product))
