"""Lengths as text on the command line.

1000                          each request has 1000 tokens
500..1500                     each length from 500 to 1500 is equally likely
800~3000                      log-normal: median 800, 90th percentile 3000
p50=800,p90=3000,p99=9000     percentiles, log-linear between them; `min=` and `max=` are optional
80%:500..1500+20%:800~3000    a mix: 80 % of the requests of one kind, 20 % of another
"""

import re
from itertools import pairwise
from typing import Final

from pdinference.api.words import cut
from pdinference_advise.advice.workload.bounds import MOST_TOKENS, WorkloadError
from pdinference_advise.advice.workload.distribution import Distribution, LogNormal, Mix, Quantiles, Uniform

EXAMPLES: Final = (
    "1000, 500..1500 (a range), 800~3000 (median and 90th percentile), p50=800,p90=3000,p99=9000 (percentiles), "
    "or a mix such as 80%:500..1500+20%:800~3000"
)
_LONGEST: Final = 1000
_MOST_PARTS: Final = 16
_NUMBER: Final = re.compile(r"[0-9]{1,12}", re.ASCII)
_PERCENT: Final = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,4})?", re.ASCII)
_ENDS: Final = {"min": 0.0, "max": 100.0}


def parse(text: str, where: str) -> Distribution:
    """The lengths that a text describes.

    Args:
        text: The text.
        where: The option that has it, for messages.

    Raises:
        WorkloadError: The text describes no lengths.
    """
    text = text.strip()
    if len(text) > _LONGEST:
        raise WorkloadError(f"{where} has more than {_LONGEST} characters.")
    return _mix(text, where) if "%" in text else single(text, where)


def single(text: str, where: str) -> Distribution:
    """Lengths that are no mix.

    Raises:
        WorkloadError: The text describes no lengths.
    """
    if "=" in text:
        return _quantiles(text, where)
    if ".." in text:
        least, most = _pair(text, "..", where)
        if least > most:
            raise WorkloadError(f"{where}: the range {least}..{most} ends before it begins. Write {most}..{least}.")
        return Uniform(least, most)
    if "~" in text:
        median, p90 = _pair(text, "~", where)
        if median > p90:
            raise WorkloadError(
                f"{where}: {median}~{p90} has a 90th percentile below its median. Write MEDIAN~P90, as in 800~3000."
            )
        return LogNormal(median, p90)
    length = _tokens(text, where)
    return Uniform(length, length)


def share(text: str, where: str) -> float:
    """Percent of requests, from `80%`.

    Raises:
        WorkloadError: It is no percentage above 0 and up to 100.
    """
    number = text.strip().removesuffix("%")
    percent = float(number) if _PERCENT.fullmatch(number) else 0.0
    if number == text.strip() or not 0 < percent <= 100:
        raise WorkloadError(
            f'{where}: "{cut(text, 40)}" is no share of requests. Write a percentage above 0 and up to 100, as in 80%.'
        )
    return percent


def require_whole(percents: list[float], where: str) -> None:
    """Check that shares are 100 % together, up to rounding.

    Raises:
        WorkloadError: They are not.
    """
    if abs(sum(percents) - 100) > 0.05:
        raise WorkloadError(f"{where}: the shares add up to {sum(percents):g} %. Make them 100 % together.")


def _mix(text: str, where: str) -> Mix:
    pieces = text.split("+")
    if len(pieces) > _MOST_PARTS:
        raise WorkloadError(f"{where} has more than {_MOST_PARTS} parts.")
    parts = []
    for piece in pieces:
        percent, separator, lengths = piece.partition(":")
        if not separator:
            raise WorkloadError(
                f'{where}: "{cut(piece, 40)}" is no part of a mix. Write SHARE:LENGTHS, as in 80%:500..1500+20%:8000.'
            )
        parts.append((share(percent, where), single(lengths.strip(), where)))
    require_whole([percent for percent, _ in parts], where)
    return Mix(tuple(parts))


def _quantiles(text: str, where: str) -> Quantiles:
    found: dict[float, int] = {}
    for piece in text.split(","):
        name, _, number = piece.partition("=")
        percentile = _percentile(name.strip(), where)
        if percentile in found:
            raise WorkloadError(f"{where} has {name.strip()} twice.")
        found[percentile] = _tokens(number, where)
    if len(found) < 2:
        raise WorkloadError(f"{where} needs two percentiles or more, as in p50=800,p90=3000.")
    points = sorted(found.items())
    for (before, fewest), (after, most) in pairwise(points):
        if fewest > most:
            raise WorkloadError(f"{where}: percentile {after:g} ({most}) is below percentile {before:g} ({fewest}).")
    return Quantiles.extended([(percentile / 100, float(tokens)) for percentile, tokens in points])


def _percentile(name: str, where: str) -> float:
    if name in _ENDS:
        return _ENDS[name]
    number = name[1:] if name[:1] == "p" and _PERCENT.fullmatch(name[1:]) else "0"
    if not 0 < float(number) < 100:
        raise WorkloadError(
            f'{where}: "{cut(name, 40)}" is no percentile. Write p50, p90, p99.9, min or max, as in p50=800,p90=3000.'
        )
    return float(number)


def _pair(text: str, separator: str, where: str) -> tuple[int, int]:
    first, _, second = text.partition(separator)
    return _tokens(first, where), _tokens(second, where)


def _tokens(text: str, where: str) -> int:
    text = text.strip()
    if not _NUMBER.fullmatch(text):
        raise WorkloadError(f'{where}: "{cut(text, 40)}" is no whole number of tokens. Lengths are {EXAMPLES}.')
    if not 1 <= int(text) <= MOST_TOKENS:
        raise WorkloadError(f"{where}: {int(text):,} tokens are not between 1 and {MOST_TOKENS:,}.")
    return int(text)
