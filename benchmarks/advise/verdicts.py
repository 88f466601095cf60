"""Verdicts without objectives for loads that were measured both ways: the median of whole requests decides."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from benchmarks.advise.measured import SERIES, Load
from benchmarks.advise.predicted import Times
from pdinference.performance.calibration import TimeSource
from pdinference_advise.advice.errors import ERRORS
from pdinference_advise.advice.verdict import Answer, quicker

_BAND: Final = ERRORS[TimeSource.INTERPOLATED].whole_p50


@dataclass(frozen=True, slots=True)
class Pair:
    """A load that was served co-located and split. Times are medians of whole requests in ms.

    Attributes:
        together: The measurement without P.
        split: The one with P.
        predicted: Co-located and split.
    """

    together: Load
    split: Load
    predicted: tuple[float, float]

    @property
    def measured(self) -> tuple[float, float]:
        """Co-located and split."""
        return self.together.whole, self.split.whole

    @property
    def kind(self) -> str:
        """Fitted, if the calibration was fitted to one of both."""
        return "fitted" if self.together.fitted or self.split.fitted else "held out"

    @property
    def verdict(self) -> Answer:
        """The verdict of advise."""
        return quicker(*self.predicted, _BAND)

    @property
    def judged(self) -> str:
        """Whether the measurement agrees: a verdict is right if that mode was faster, however little."""
        together, split = self.measured
        if self.verdict is Answer.CLOSE:
            return "right" if quicker(together, split, _BAND) is Answer.CLOSE else "undecided"
        return "right" if self.verdict is (Answer.SPLIT if split < together else Answer.TOGETHER) else "wrong"


def pairs(predictions: Mapping[Load, Times]) -> Iterator[Pair]:
    """The loads that one series of measurements has both ways."""
    for series in SERIES:
        for split in series:
            for together in series:
                if together.way == "co-located" and split.splits_all and _load(together) == _load(split):
                    yield Pair(together, split, (predictions[together].whole, predictions[split].whole))


def _load(load: Load) -> tuple[object, ...]:
    return load.prompt, load.answer, load.others, load.rate, load.fp8, load.weights8, load.tensor
