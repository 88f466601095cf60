"""The way of the KV cache from P to D.

Tests: tests/advise/simulation/test_fleet.py
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Way:
    """A link that transfers share.

    Attributes:
        name: For people.
        rate: Bytes a second in all.
        latency: Seconds of a transfer beside its bytes.
    """

    name: str
    rate: float
    latency: float


NVLINK: Final = Way("NVLink", 95e9, 0.0042)
"""Measured on two H200s: 14 to 16 ms for 1.06 GB, 6 ms for 134 MB."""
TCP: Final = Way("TCP", 2.5e9, 0.014)
"""Measured on two H200s, with segments of 512 KiB."""
