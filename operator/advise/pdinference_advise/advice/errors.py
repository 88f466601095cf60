"""How far predictions were from measurements: the error band of every answer."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from pdinference.performance.calibration import TimeSource


@dataclass(frozen=True, slots=True)
class Errors:
    """Median relative errors of predictions.

    Attributes:
        ttft_p50: Of the median time to the first token.
        ttft_p99: Of its 99th percentile.
        tpot_p50: Of the median time per output token.
        tpot_p99: Of its 99th percentile.
        gap_p99: Of the 99th percentile of gaps between tokens.
        whole_p50: Of the median time of a whole request.
        rate: Of the rate at which an arrangement is full. Assumed: no such rate was measured.
    """

    ttft_p50: float
    ttft_p99: float
    tpot_p50: float
    tpot_p99: float
    gap_p99: float
    whole_p50: float
    rate: float

    def ttft(self, percentile: float) -> float:
        """Of a percentile of the time to the first token."""
        return self.ttft_p50 if percentile <= _TAIL else self.ttft_p99

    def tpot(self, percentile: float) -> float:
        """Of a percentile of the time per output token."""
        return self.tpot_p50 if percentile <= _TAIL else self.tpot_p99


_TAIL: Final = 75
"""Percentile above which the error is that of the 99th."""
_CALIBRATED: Final = Errors(0.10, 0.20, 0.09, 0.10, 0.30, 0.08, 0.10)
_MIXTURE: Final = Errors(0.15, 0.20, 0.10, 0.10, 0.35, 0.10, 0.10)
"""Of a mixture of experts with a calibration of its own."""
_EXTRAPOLATED: Final = Errors(0.45, 0.50, 0.30, 0.30, 0.45, 0.30, 0.25)
"""No smaller than the errors of half of the publications of others (benchmarks/results/advise.md)."""

ERRORS: Final[Mapping[TimeSource, Errors]] = MappingProxyType(
    {
        TimeSource.MEASURED: _CALIBRATED,
        TimeSource.INTERPOLATED: _CALIBRATED,
        TimeSource.EXTRAPOLATED: _EXTRAPOLATED,
    }
)
"""By the source of the calibration: of the product itself, or taken from another product or kind of model."""


def band_of(source: TimeSource, *, mixture: bool) -> Errors:
    """The error band of a prediction.

    Args:
        source: Of its least certain part.
        mixture: Whether the model is a mixture of experts.
    """
    return _MIXTURE if mixture and ERRORS[source] is _CALIBRATED else ERRORS[source]
