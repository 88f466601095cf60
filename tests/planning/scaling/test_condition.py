"""The condition Autoscaling reports the verdicts of HPAs in plain words."""

from dataclasses import replace

import pytest

from pdinference.api.names import Role
from pdinference.planning.condition_changes import ConditionResult
from pdinference.planning.observed import AutoscalerState, MetricLoad, ObservedCondition
from pdinference.planning.scaling.condition import MeasuredLoad, autoscaling_result, scaling_text
from pdinference.planning.scaling.limited import Limit, LimitReason
from pdinference.planning.scaling.unknown_load import NOT_READ_YET

P, D = Role.PARAMETER, Role.DECODE
FINE = AutoscalerState(
    minimum=1,
    maximum=4,
    evaluated=True,
    loads=(MetricLoad("pdinference_kv_demand", 5, 800),),
    able=ObservedCondition("True", "ReadyForNewScale"),
    active=ObservedCondition("True", "ValidMetricFound"),
    limited=ObservedCondition("False", "DesiredWithinRange", "the desired count is within the acceptable range"),
)
ELSEWHERE = MeasuredLoad(problem=("MetricsApiElsewhere", "Another server has it."))


def of(hpa: AutoscalerState | None, measured: MeasuredLoad = MeasuredLoad()) -> ConditionResult:  # noqa: B008
    return autoscaling_result({D: hpa}, measured)


def limited(reason: str) -> AutoscalerState:
    return replace(FINE, limited=ObservedCondition("True", reason))


def blind(reason: str, message: str, *loads: MetricLoad) -> AutoscalerState:
    return replace(FINE, active=ObservedCondition("False", reason, message), loads=loads or FINE.loads)


def test_a_role_that_follows_its_load() -> None:
    assert of(FINE) == ("True", "Active", "D: The replica count follows the load.")
    enforced = tuple(replace(load, tenths=None) for load in FINE.loads)
    assert of(replace(FINE, loads=enforced)) == of(FINE), "an HPA that only enforced its range is not inactive"


UNREAD = (*FINE.loads, MetricLoad("pdinference_waiting_requests", None, 4000))
PREFIXED = (
    "the HPA was unable to compute the replica count: unable to get external metric ns/pdinference_kv_demand/"
    "&LabelSelector{}: unable to fetch metrics from external metrics API: decode of ns/x: no pod serves yet"
)
READS_FIRST = PREFIXED.replace("no pod serves yet", NOT_READ_YET)
TWO_HPAS = "pods by selector x are controlled by multiple HPAs: [ns/llama-decode ns/mine]"


@pytest.mark.parametrize(
    ("hpa", "verdict", "word"),
    [
        (limited("TooManyReplicas"), "True TooManyReplicas", "maxReplicas (4)"),
        (limited("TooFewReplicas"), "True TooFewReplicas", "minReplicas (1)"),
        (limited("ScaleUpLimit"), "True ScaleUpLimit", "behavior"),
        (limited("ScaleDownLimit"), "True ScaleDownLimit", "behavior"),
        (
            replace(FINE, able=ObservedCondition("True", "ScaleDownStabilized")),
            "True ScaleDownStabilized",
            "Scale-down waits",
        ),
        (None, "Unknown Starting", "does not exist yet"),
        (replace(FINE, evaluated=False, able=None, active=None), "Unknown Starting", "has not evaluated"),
        (
            replace(FINE, able=ObservedCondition("False", "FailedGetScale", "not found")),
            "False FailedGetScale",
            "not found",
        ),
        (blind("NoMetric", PREFIXED), "False NoMetric", "does not change: decode of ns/x: no pod serves yet."),
        (
            blind("NoMetric", READS_FIRST),
            "Unknown Starting",
            f"The load is not known yet: decode of ns/x: {NOT_READ_YET}.",
        ),
        (replace(FINE, loads=UNREAD), "True Active", " No scale-down while waitingRequests cannot be read."),
        (
            blind("AmbiguousSelector", TWO_HPAS),
            "False AmbiguousSelector",
            f"D: Another HorizontalPodAutoscaler selects the same pods, so both are inactive; delete it: {TWO_HPAS}.",
        ),
    ],
)
def test_verdicts_of_an_hpa(hpa: AutoscalerState | None, verdict: str, word: str) -> None:
    found = of(hpa)
    assert f"{found.status} {found.reason}" == verdict
    assert word in found.message


def test_an_hpa_that_waits_for_the_first_reading_says_so() -> None:
    found = of(None, MeasuredLoad(unread=frozenset({D})))
    assert (found.status, found.reason) == ("Unknown", "Starting")
    assert "reads the pods for the first time, and then creates the HPA" in found.message


def test_what_is_said_of_a_role_ends_before_what_is_said_of_the_other() -> None:
    """Messages of Kubernetes and of KEDA have no full stop. The worse of two roles decides, and both are reported."""
    found = autoscaling_result({P: blind("NoMetric", "no such metric"), D: FINE}, MeasuredLoad())
    assert (found.status, found.reason) == ("False", "NoMetric")
    assert found.message.startswith("P: ")
    assert found.message.endswith("no such metric. D: The replica count follows the load.")


LATENCY = MetricLoad("pdinference_time_to_first_token_milliseconds_p90", 5, 500_000, averaged=False)


@pytest.mark.parametrize(
    ("hpa", "result"),
    [
        (blind("FailedGetExternalMetric", "404"), "False MetricsApiElsewhere"),
        (blind("FailedGetExternalMetric", "404", LATENCY), "False MetricsApiElsewhere"),
        (replace(FINE, evaluated=False, active=None), "False MetricsApiElsewhere"),
        (FINE, "True Active"),  # it sees, so whatever we think is old news
        (blind("FailedGetResourceMetric", "none", MetricLoad("cpu", 5, 70_000)), "False FailedGetResourceMetric"),
    ],
)
def test_a_metrics_api_that_is_not_ours_is_named_once_the_hpa_is_blind(hpa: AutoscalerState, result: str) -> None:
    found = of(hpa, ELSEWHERE)
    assert f"{found.status} {found.reason}" == result


@pytest.mark.parametrize(
    "load", [*FINE.loads, MetricLoad("decodeLoad", 5, 900), MetricLoad("pdinference_decode_load", 5, 900), LATENCY]
)
def test_silent_pods_are_named_whichever_source_reads_the_load(load: MetricLoad) -> None:
    found = of(replace(FINE, loads=(load,)), MeasuredLoad(silent={D: ("a", "b", "c", "d")}))
    assert found.status == "True"
    assert "No metrics from these pods: a, b, c and others" in found.message
    one = of(replace(FINE, loads=(load,)), MeasuredLoad(silent={D: ("a",)}))
    assert "No metrics from these pods: a." in one.message


def test_silent_pods_do_not_matter_where_no_metric_is_the_operators() -> None:
    others = replace(FINE, loads=(MetricLoad("cpu", 5, 900),))
    assert of(others, MeasuredLoad(silent={D: ("a",)})) == of(others)


@pytest.mark.parametrize(
    ("looked", "now", "reason"),
    [
        (4, (1, 4), "TooManyReplicas"),
        (4, (1, 8), "Active"),  # raised since
        (4, (1, 3), "TooManyReplicas"),
        (4, (4, 8), "TooFewReplicas"),
        (4, (2, 8), "Active"),  # lowered since
        (4, (5, 8), "TooFewReplicas"),
    ],
)
def test_a_changed_range_is_no_limit_until_the_hpa_is_evaluated(looked: int, now: tuple[int, int], reason: str) -> None:
    said = "TooManyReplicas" if looked >= now[1] or now[0] == 1 else "TooFewReplicas"
    minimum, maximum = now
    hpa = replace(FINE, minimum=minimum, maximum=maximum, desired=looked, limited=ObservedCondition("True", said))
    assert of(hpa).reason == reason


def test_the_reason_is_that_of_the_role_that_gets_least_of_what_it_wants() -> None:
    few, many = limited("TooFewReplicas"), limited("TooManyReplicas")
    for p, d, reason in ((FINE, few, "TooFewReplicas"), (few, many, "TooManyReplicas"), (FINE, FINE, "Active")):
        assert autoscaling_result({P: p, D: d}, MeasuredLoad()).reason == reason


def test_loads_are_shown_as_users_write_their_targets() -> None:
    loads = (
        MetricLoad("pdinference_kv_demand", 15, 800),
        MetricLoad("pdinference_queued_prompt_tokens", None, 8_000_000),
        MetricLoad("cpu", 5, 70_000),
    )
    text = "kvDemand 120%/80%, queuedPromptTokens ?/8000, cpu 35/70; 1-4 pods"
    assert scaling_text(replace(FINE, loads=loads)) == text


@pytest.mark.parametrize("reason", [LimitReason.GPU_BUDGET, LimitReason.RATIO])
def test_a_limit_of_both_roles_together_is_the_reason(reason: LimitReason) -> None:
    found = autoscaling_result(
        {P: FINE, D: FINE}, MeasuredLoad(), limited={D: Limit(reason, 6, 4, "4 of 4 GPUs are in use.")}
    )
    assert (found.status, found.reason) == ("True", reason)
    assert found.message.endswith("D: 4 of 4 GPUs are in use.")


@pytest.mark.parametrize("reason", [LimitReason.TOO_MANY, LimitReason.STARTING])
def test_a_limit_of_one_role_is_left_to_its_hpa(reason: LimitReason) -> None:
    found = autoscaling_result({D: FINE}, MeasuredLoad(), limited={D: Limit(reason, 6, 4, "maxReplicas is 4.")})
    assert found.reason == "Active"


def test_an_unknown_load_comes_before_a_limit() -> None:
    hpa, limit = blind("NoMetric", "no such metric"), Limit(LimitReason.GPU_BUDGET, 6, 4, "In use.")
    found = autoscaling_result({D: hpa}, MeasuredLoad(), limited={D: limit})
    assert (found.status, found.reason) == ("False", "NoMetric")
