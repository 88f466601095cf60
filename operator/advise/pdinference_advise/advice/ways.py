"""The ways of the KV cache that are compared, and where their speeds come from.

Tests: tests/advise/advice/test_options.py
"""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from pdinference.api.words import cut
from pdinference.performance.calibration import H200, TimeSource
from pdinference.performance.devices import device_key, device_of
from pdinference.performance.links import NVLINK, TCP, Way
from pdinference_advise.advice.problem import AdviceError

_GBPS: Final = re.compile(r"([0-9]{1,5}(?:\.[0-9]{1,4})?)\s*(?:GB/s)?", re.ASCII | re.IGNORECASE)
_MEASURED_LINKS: Final = 450e9
"""Peak of the links on which NVLINK was measured, in bytes a second."""
_NVLINK_LEAST: Final = 150e9
"""Links below this are PCIe."""


@dataclass(frozen=True, slots=True)
class Transport:
    """A way between P and D.

    Attributes:
        name: `nvlink`, `tcp` or `rdma`.
        rate: Bytes a second that the user states; None for the measured ones.
    """

    name: str
    rate: float | None = None

    @property
    def host_local(self) -> bool:
        """Whether P and D have to share a pod."""
        return self.name == "nvlink"

    @property
    def title(self) -> str:
        """For people."""
        return {"nvlink": "NVLink", "tcp": "TCP", "rdma": "RDMA"}[self.name]


DEFAULT: Final = (Transport("nvlink"), Transport("tcp"))


@dataclass(frozen=True, slots=True)
class KnownWay:
    """A way, and the source of its speed."""

    way: Way
    source: TimeSource


def parse_transports(texts: Iterable[str]) -> tuple[Transport, ...]:
    """Read the option --transport: `nvlink`, `tcp`, `rdma=40`, `tcp=1.2GB/s` or a number for the network.

    Raises:
        AdviceError: One is not of that form.
    """
    found = tuple(dict.fromkeys(_transport(text.strip()) for text in texts))
    return found or DEFAULT


def _transport(text: str) -> Transport:
    name, separator, number = text.lower().partition("=")
    if not separator and _GBPS.fullmatch(name):
        name, number = "tcp", name
    rate = _rate(number, text) if number else None
    if name not in {"nvlink", "tcp", "rdma"} or (separator and rate is None):
        raise AdviceError(
            f'--transport: "{cut(text, 60)}" is no way of the KV cache. Write nvlink, tcp, rdma=40GB/s, or the GB/s of '
            "your network, such as 1.2GB/s. `pdinference doctor` measures it."
        )
    if name == "rdma" and rate is None:
        raise AdviceError(
            "--transport rdma: its speed was not measured here, so nothing can be predicted for it. Write "
            "rdma=40GB/s with the speed of yours; `pdinference doctor` measures it."
        )
    return Transport(name, rate)


def _rate(number: str, text: str) -> float:
    match = _GBPS.fullmatch(number)
    rate = float(match[1]) * 1e9 if match else math.nan
    if not 1e6 <= rate <= 1e13:
        raise AdviceError(f'--transport: "{cut(text, 60)}" has no speed between 0.001 and 10000 GB/s.')
    return rate


def way_of(transport: Transport, product: str, tensor: int) -> KnownWay:
    """The way between two instances.

    Args:
        transport: What was asked for.
        product: Product of D's GPUs.
        tensor: Tensor-parallel ranks of P: over NVLink each has a way of its own.
    """
    if transport.rate is not None:
        # No transfer over RDMA was measured here: its latency is assumed to be that of TCP.
        source = TimeSource.EXTRAPOLATED if transport.name == "rdma" else TimeSource.MEASURED
        latency = NVLINK.latency if transport.host_local else TCP.latency
        return KnownWay(Way(transport.title, transport.rate, latency), source)
    if not transport.host_local:
        return KnownWay(TCP, TimeSource.INTERPOLATED)
    device = device_of(product)
    links = device.links if device is not None else _MEASURED_LINKS
    same = device_key(product) == device_key(H200.product)
    rate = NVLINK.rate * min(1.0, links / _MEASURED_LINKS) * tensor
    name = NVLINK.name if links >= _NVLINK_LEAST else "PCIe"
    return KnownWay(replace(NVLINK, name=name, rate=rate), TimeSource.INTERPOLATED if same else TimeSource.EXTRAPOLATED)
