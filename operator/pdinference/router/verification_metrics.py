"""The state of the verification of the KV transfer, for Prometheus.

Tests: tests/router/test_verification.py
"""

from collections.abc import Iterator
from typing import Final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from pdinference.api.names import (
    ENGINE_ROLES,
    METRIC_PAIR_AGE_SECONDS,
    METRIC_PAIR_FAULT_SECONDS,
    METRIC_PAIR_FAULTS,
    METRIC_VERIFICATION,
    METRIC_VERIFICATION_AGE_SECONDS,
    METRIC_VERIFICATION_DISTANCE,
    METRIC_VERIFICATION_LIMIT,
    METRIC_VERIFICATION_TOKENS,
    Verification,
)
from pdinference.planning.transfer_measurements import MOST_PAIRS
from pdinference.router.verification import Verifier

HELP: Final = {
    METRIC_VERIFICATION: "1 for the state of the verification of the KV transfer, with the pod that has the fault.",
    METRIC_VERIFICATION_AGE_SECONDS: "Seconds since the canary ended that the state is of.",
    METRIC_VERIFICATION_TOKENS: "Prompt tokens of that canary.",
    METRIC_VERIFICATION_DISTANCE: "Distance of its answers from those of P alone.",
    METRIC_VERIFICATION_LIMIT: "Distance from which on answers are wrong.",
    METRIC_PAIR_FAULTS: "Canaries in a row that found a fault between a P and a D pod; 0 after a good one.",
    METRIC_PAIR_FAULT_SECONDS: "Seconds from the first to the last of these canaries.",
    METRIC_PAIR_AGE_SECONDS: "Seconds since the last canary between the two pods ended.",
}
"""Description of each series."""


class VerificationMetrics(Collector):
    """The result that a verifier shows."""

    def __init__(self, verifier: Verifier) -> None:
        self._verifier = verifier

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The series."""
        shown = self._verifier.shown
        states = GaugeMetricFamily(METRIC_VERIFICATION, HELP[METRIC_VERIFICATION], labels=["state", *ENGINE_ROLES])
        for state in Verification:
            is_shown = state is shown.outcome.state
            pods = (shown.faulty_parameter, shown.faulty_decode) if is_shown else ("", "")
            states.add_metric([state, *pods], float(is_shown))
        yield states
        for name, value in (
            (METRIC_VERIFICATION_AGE_SECONDS, self._verifier.since(shown)),
            (METRIC_VERIFICATION_TOKENS, shown.outcome.tokens),
            (METRIC_VERIFICATION_DISTANCE, shown.outcome.distance),
            (METRIC_VERIFICATION_LIMIT, shown.outcome.limit),
        ):
            yield GaugeMetricFamily(name, HELP[name], value=value)
        yield from self._pairs()

    def _pairs(self) -> Iterator[GaugeMetricFamily]:
        """The pairs of which a canary has shown whether KV cache gets through."""
        faults, seconds, ages = families = [
            GaugeMetricFamily(name, HELP[name], labels=[*ENGINE_ROLES])
            for name in (METRIC_PAIR_FAULTS, METRIC_PAIR_FAULT_SECONDS, METRIC_PAIR_AGE_SECONDS)
        ]
        known = [one for one in self._verifier.pairs.values() if one.outcome.state is not Verification.PENDING]
        for result in sorted(known, key=lambda one: -one.faults)[:MOST_PAIRS]:
            pods = (result.parameter, result.decode)
            faults.add_metric(pods, result.faults)
            seconds.add_metric(pods, result.faulty_until - result.faulty_since if result.faults else 0.0)
            ages.add_metric(pods, self._verifier.since(result))
        yield from families
