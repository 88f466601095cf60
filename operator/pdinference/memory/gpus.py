"""Memory of accelerators by the value of their product label: data, no guesses.

Sizes are GiB that PyTorch reports as the total (`torch.accelerator.get_memory_info`), which is what vLLM multiplies by
gpuMemoryUtilization; it is a little less than the size in the name. Drivers differ by some tenths of a GiB.

Tests: tests/memory/test_plan.py, tests/memory/comparison/test_common_gpus.py
"""

from pdinference.memory import ways_out
from pdinference.memory.figures import GIB, Figure, computed, measured, unknown

_MEASURED_GIB = {"nvidia-h200": 139.8, "nvidia-h100-80gb-hbm3": 79.18}
"""Read by us on such a device."""

_GIB = {
    # NVIDIA datacenter, as GPU feature discovery labels them
    "nvidia-a100-sxm4-80gb": 79.25,
    "nvidia-a100-80gb-pcie": 79.25,
    "nvidia-a100-pcie-80gb": 79.25,
    "nvidia-a100-sxm4-40gb": 39.49,
    "nvidia-a100-pcie-40gb": 39.49,
    "nvidia-a800-sxm4-80gb": 79.25,
    "nvidia-a800-80gb-pcie": 79.25,
    "nvidia-a40": 44.42,
    "nvidia-a30": 23.59,
    "nvidia-a16": 14.54,
    "nvidia-a10": 22.06,
    "nvidia-a10g": 22.06,
    "nvidia-a2": 14.54,
    "nvidia-b200": 178.35,
    "nvidia-b300": 267.7,
    "nvidia-b300-sxm6-ac": 267.7,
    "nvidia-gb200": 184.3,
    "nvidia-gh200-480gb": 94.5,
    "nvidia-h100-pcie": 79.18,
    "nvidia-h100-nvl": 93.1,
    "nvidia-h200-nvl": 139.8,
    "nvidia-h20": 95.0,
    "nvidia-h800": 79.18,
    "nvidia-l4": 22.03,
    "nvidia-l20": 44.42,
    "nvidia-l40": 44.42,
    "nvidia-l40s": 44.42,
    "tesla-t4": 14.56,
    "tesla-p100-pcie-16gb": 15.89,
    "tesla-v100-pcie-16gb": 15.77,
    "tesla-v100-pcie-32gb": 31.74,
    "tesla-v100-sxm2-16gb": 15.77,
    "tesla-v100-sxm2-32gb": 31.74,
    # NVIDIA workstation and consumer
    "nvidia-rtx-a4000": 15.72,
    "nvidia-rtx-a5000": 23.68,
    "nvidia-rtx-a6000": 47.53,
    "nvidia-rtx-4000-ada-generation": 19.55,
    "nvidia-rtx-5000-ada-generation": 31.5,
    "nvidia-rtx-6000-ada-generation": 47.4,
    "nvidia-rtx-pro-6000-blackwell-server-edition": 94.97,
    "nvidia-rtx-pro-6000-blackwell-workstation-edition": 94.97,
    "nvidia-geforce-rtx-3060": 11.75,
    "nvidia-geforce-rtx-3080": 9.75,
    "nvidia-geforce-rtx-3090": 23.68,
    "nvidia-geforce-rtx-3090-ti": 23.68,
    "nvidia-geforce-rtx-4060-ti": 15.6,
    "nvidia-geforce-rtx-4070": 11.72,
    "nvidia-geforce-rtx-4080": 15.7,
    "nvidia-geforce-rtx-4090": 23.52,
    "nvidia-geforce-rtx-5080": 15.5,
    "nvidia-geforce-rtx-5090": 31.36,
    # AMD, as its device labeller writes them
    "amd-instinct-mi210": 63.98,
    "amd-instinct-mi250x": 63.98,
    "amd-instinct-mi300x": 191.98,
    "amd-instinct-mi300x-oam": 191.98,
    "amd-instinct-mi325x": 255.98,
    "amd-instinct-mi325x-oam": 255.98,
    "amd-instinct-mi355x": 287.98,
    "mi300x": 191.98,
    "mi325x": 255.98,
    # Intel Gaudi
    "gaudi2": 94.62,
    "hl-225": 94.62,
    "gaudi3": 126.5,
    "hl-325": 126.5,
}


def gpu_memory(product: str) -> Figure:
    """Total memory, in bytes, of one device of a product.

    Args:
        product: Value of the node label, for example `NVIDIA-H100-80GB-HBM3`; time-slicing's suffix is ignored.
    """
    key = product.lower().replace("_", "-").removesuffix("-shared")
    if (size := _MEASURED_GIB.get(key)) is not None:
        return measured(round(size * GIB), f"{product}: {size} GiB, read on such a device.")
    if (size := _GIB.get(key)) is not None:
        return computed(round(size * GIB), f"{product}: {size} GiB, from the table of products (memory/gpus.py).")
    return unknown(f"The memory of product {product} is not known. {ways_out.PRODUCT}")


def smallest_gpu_memory(products: list[str]) -> Figure:
    """The memory of the smallest of the products that pods may run on; unknown when one of them is."""
    if not products:
        return unknown(f"No product is named. {ways_out.DEVICE}")
    sizes = [gpu_memory(product) for product in products]
    unfamiliar = next((size for size in sizes if not size.known), None)
    return unfamiliar or min(sizes, key=lambda size: size.value or 0)
