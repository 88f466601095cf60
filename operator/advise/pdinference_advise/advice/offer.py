"""GPUs that there are, and their prices: `8xH100` and `H100=2.5`.

Tests: tests/advise/advice/test_options.py
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from pdinference.api.words import cut
from pdinference.memory.gpus import gpu_memory
from pdinference.memory.product_names import PRODUCTS
from pdinference.performance.devices import device_key, device_of
from pdinference_advise.advice.problem import AdviceError

MOST_GPUS: Final = 1024
_MOST_KINDS: Final = 4
_MOST_PRICE: Final = 1e6

_GPUS: Final = re.compile(r"([1-9][0-9]{0,4})\s*[xX]\s*([A-Za-z0-9][A-Za-z0-9_.-]{0,62})", re.ASCII)
_PRODUCT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}", re.ASCII)


@dataclass(frozen=True, slots=True)
class OfferedPool:
    """GPUs of one product.

    Attributes:
        product: Value of the node label.
        name: The product as the user writes it.
        number: How many there are.
        price: Of one GPU for an hour; 1 where no prices are given, so that costs are GPU-hours.
    """

    product: str
    name: str
    number: int
    price: float = 1.0


@dataclass(frozen=True, slots=True)
class Offer:
    """All GPUs that there are.

    Attributes:
        pools: By product.
        priced: Whether prices are given.
    """

    pools: tuple[OfferedPool, ...]
    priced: bool

    @property
    def gpus(self) -> int:
        """How many there are in all."""
        return sum(pool.number for pool in self.pools)

    def __str__(self) -> str:
        return " + ".join(f"{pool.number} x {pool.name}" for pool in self.pools)


def parse_offer(
    gpus: Iterable[str], prices: Iterable[str], *, memory_known: bool = False, calibrated: Iterable[str] = ()
) -> Offer:
    """Read the options --gpus and --price.

    Args:
        gpus: For example `8xH100`.
        prices: For example `H100=2.5`, for an hour.
        memory_known: Whether the memory of a device is stated, so that the table of products need not have it.
        calibrated: Products whose speed the user has measured.

    Raises:
        AdviceError: An option is not of that form, or nothing is known of a product.
    """
    found = [_pool(text) for text in gpus]
    products = [pool.product for pool in found]
    if twice := next((pool for pool in found if products.count(pool.product) > 1), None):
        raise AdviceError(f"--gpus has {twice.product} twice. Add the numbers up.")
    if len(found) > _MOST_KINDS:
        raise AdviceError(f"--gpus has {len(found)} products; at most {_MOST_KINDS} are compared. Leave some out.")
    own = {device_key(product) for product in calibrated}
    for pool in found:
        _require_known(pool, speed_known=device_key(pool.product) in own, memory_known=memory_known)
    return _priced(found, dict(map(_price, prices)))


def product_of(name: str) -> str:
    """The value of the product label for a short name; any other name is taken as that value."""
    key = device_key(name)
    return PRODUCTS.get(key.removeprefix("nvidia-"), name.removesuffix("-SHARED"))


def _pool(text: str) -> OfferedPool:
    match = _GPUS.fullmatch(text.strip())
    if match is None:
        raise AdviceError(
            f'--gpus: "{cut(text, 60)}" is no number of GPUs. Write NUMBERxPRODUCT, such as 8xH100 or 2xNVIDIA-H200.'
        )
    number = int(match[1])
    if number > MOST_GPUS:
        raise AdviceError(f"--gpus: {number:,} GPUs are more than {MOST_GPUS:,}. Ask for a part of them.")
    return OfferedPool(product_of(match[2]), match[2], number)


def _require_known(pool: OfferedPool, *, speed_known: bool, memory_known: bool) -> None:
    if not speed_known and device_of(pool.product) is None:
        raise AdviceError(
            f"--gpus: the speed of {pool.product} is not known, so nothing can be predicted for it. Known short names: "
            f"{', '.join(sorted(PRODUCTS))}. Other products are written as in `kubectl get nodes -L "
            "nvidia.com/gpu.product`; those that are known are in performance/devices.py. Measure any other one with "
            "`pdinference calibrate`, and give its file with --calibration."
        )
    if not memory_known and not (memory := gpu_memory(pool.product)).known:
        raise AdviceError(f"--gpus: {memory.note}")


def _price(text: str) -> tuple[str, float]:
    name, _, number = text.partition("=")
    try:
        price = float(number)
    except ValueError:
        price = math.nan
    if not _PRODUCT.fullmatch(name.strip()) or not 0 < price <= _MOST_PRICE:
        raise AdviceError(
            f'--price: "{cut(text, 60)}" is no price. Write PRODUCT=PRICE, the price of one GPU for an hour, such as '
            "H100=2.5."
        )
    return product_of(name.strip()), price


def _priced(pools: list[OfferedPool], prices: Mapping[str, float]) -> Offer:
    products = {pool.product for pool in pools}
    if other := next((product for product in prices if product not in products), None):
        raise AdviceError(f"--price: {other} is not among --gpus. Leave it out, or add these GPUs.")
    if prices and (missing := next((pool for pool in pools if pool.product not in prices), None)):
        raise AdviceError(f"--price: there is none for {missing.name}. Give one for each product of --gpus.")
    priced = tuple(
        OfferedPool(pool.product, pool.name, pool.number, prices.get(pool.product, pool.price)) for pool in pools
    )
    return Offer(priced, bool(prices))
