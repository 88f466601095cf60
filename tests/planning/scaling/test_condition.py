"""The condition Autoscaling reports the verdicts of HPAs in plain words."""

from dataclasses import replace

import pytest

from pdinference.api.names import Role
from pdinference.planning.condition_changes import ConditionResult
from pdinference.planning.observed import AutoscalerState, Load, Verdict
from pdinference.planning.scaling.condition import MeasuredLoad, autoscaling_result, scaling_text
from pdinference.planning.scaling.limited import Limit, LimitReason

P, D = Role.PARAMETER, Role.DECODE
FINE = AutoscalerState(
    minimum=1,
    maximum=4,
    evaluated=True,
    loads=(Load("pdinference_kv_demand", 5, 800),),
    able=Verdict("True", "ReadyForNewScale"),
    active=Verdict("True", "ValidMetricFound"),
    limited=Verdict("False", "DesiredWithinRange", "the desired count is within the acceptable range"),
)
ELSEWHERE = MeasuredLoad(problem=("MetricsApiElsewhere", "Another server has it."))


def of(hpa: AutoscalerState | None, measured: MeasuredLoad = MeasuredLoad()) -> ConditionResult:  # noqa: B008
    return autoscaling_result({D: hpa}, measured)


def test_a_role_that_follows_its_load() -> None:
    assert of(FINE) == ("True", "Active", "D: The replica count follows the load.")


@pytest.mark.parametrize(
    ("hpa", "reason", "word"),
    [
        (replace(FINE, limited=Verdict("True", "TooManyReplicas")), "TooManyReplicas", "maxReplicas (4)"),
        (replace(FINE, limited=Verdict("True", "TooFewReplicas")), "TooFewReplicas", "minReplicas (1)"),
        (replace(FINE, limited=Verdict("True", "ScaleUpLimit")), "ScaleUpLimit", "behavior"),
        (replace(FINE, limited=Verdict("True", "ScaleDownLimit")), "ScaleDownLimit", "behavior"),
        (replace(FINE, able=Verdict("True", "ScaleDownStabilized")), "ScaleDownStabilized", "Scale-down waits"),
    ],
)
def test_limits_are_reported_without_warning(hpa: AutoscalerState, reason: str, word: str) -> None:
    found = of(hpa)
    assert (found.status, found.reason) == ("True", reason)
    assert word in found.message


@pytest.mark.parametrize(
    ("hpa", "status", "word"),
    [
        (None, "Unknown", "does not exist yet"),
        (replace(FINE, evaluated=False, able=None, active=None), "Unknown", "has not evaluated"),
        (
            replace(FINE, active=Verdict("False", "FailedGetExternalMetric", "no pod serves yet")),
            "False",
            "does not change",
        ),
        (replace(FINE, able=Verdict("False", "FailedGetScale", "not found")), "False", "cannot be changed: not found"),
    ],
)
def test_what_keeps_it_from_following(hpa: AutoscalerState | None, status: str, word: str) -> None:
    found = of(hpa)
    assert found.status == status
    assert word in found.message


def test_an_error_of_the_metrics_server_is_quoted_without_prefix() -> None:
    said = (
        "the HPA was unable to compute the replica count: unable to get external metric ns/pdinference_kv_demand/"
        "&LabelSelector{}: unable to fetch metrics from external metrics API: decode of ns/x: no pod serves yet"
    )
    blind = replace(FINE, active=Verdict("False", "FailedGetExternalMetric", said))
    assert of(blind).message.endswith("does not change: decode of ns/x: no pod serves yet.")


def test_a_metric_that_cannot_be_read_beside_others_is_named() -> None:
    loads = (*FINE.loads, Load("pdinference_waiting_requests", None, 4000))
    found = of(replace(FINE, loads=loads))
    assert found.status == "True"
    assert found.message.endswith(" No scale-down while waitingRequests cannot be read.")


def test_an_hpa_that_only_enforced_its_range_is_not_inactive() -> None:
    loads = tuple(replace(load, tenths=None) for load in FINE.loads)
    assert of(replace(FINE, loads=loads)) == of(FINE)


def test_what_is_said_of_a_role_ends_before_what_is_said_of_the_other() -> None:
    """Messages of Kubernetes and of KEDA have no full stop."""
    blind = replace(FINE, active=Verdict("False", "NoMetric", "no such metric"))
    assert "no such metric. D: The" in autoscaling_result({P: blind, D: FINE}, MeasuredLoad()).message


def test_a_metrics_api_that_is_not_ours_is_named_once_the_hpa_is_blind() -> None:
    blind = replace(FINE, active=Verdict("False", "FailedGetExternalMetric", "404"))
    assert of(blind, ELSEWHERE).reason == "MetricsApiElsewhere"
    assert of(replace(FINE, evaluated=False, active=None), ELSEWHERE).status == "False"
    assert of(FINE, ELSEWHERE).status == "True"  # it sees, so whatever we think is old news


def test_an_hpa_with_other_metrics_alone_does_not_care() -> None:
    cpu = replace(
        FINE, loads=(Load("cpu", 5, 70000),), active=Verdict("False", "FailedGetResourceMetric", "no metrics")
    )
    assert of(cpu, ELSEWHERE).reason == "FailedGetResourceMetric"


def test_another_hpa_for_the_same_pods_is_reported_as_the_cause() -> None:
    said = "pods by selector x are controlled by multiple HPAs: [ns/llama-decode ns/mine]"
    found = of(replace(FINE, active=Verdict("False", "AmbiguousSelector", said)))
    assert (found.status, found.reason) == ("False", "AmbiguousSelector")
    assert found.message == (
        "D: Another HorizontalPodAutoscaler selects the same pods, so both are inactive; delete it: "
        "pods by selector x are controlled by multiple HPAs: [ns/llama-decode ns/mine]."
    )


def test_silent_pods_do_not_matter_where_no_metric_is_the_operators() -> None:
    others = replace(FINE, loads=(Load("cpu", 5, 900),))
    assert of(others, MeasuredLoad(silent={D: ("a",)})) == of(others)


@pytest.mark.parametrize("metric", ["decodeLoad", "pdinference_decode_load"])
def test_silent_pods_are_named_whichever_source_reads_the_load(metric: str) -> None:
    found = of(replace(FINE, loads=(Load(metric, 5, 900),)), MeasuredLoad(silent={D: ("a",)}))
    assert "No metrics from these pods: a." in found.message


def test_latencies_are_metrics_of_the_operator_too() -> None:
    slow = replace(FINE, loads=(Load("pdinference_time_to_first_token_milliseconds_p90", 5, 500_000, averaged=False),))
    assert "No metrics from these pods" in of(slow, MeasuredLoad(silent={D: ("a",)})).message
    blind = replace(slow, active=Verdict("False", "FailedGetExternalMetric", "404"))
    assert of(blind, ELSEWHERE).reason == "MetricsApiElsewhere"


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
    hpa = replace(FINE, minimum=minimum, maximum=maximum, desired=looked, limited=Verdict("True", said))
    assert of(hpa).reason == reason


def test_silent_pods_are_named() -> None:
    found = of(FINE, MeasuredLoad(silent={D: ("a", "b", "c", "d")}))
    assert found.status == "True"
    assert "a, b, c and others" in found.message


def test_the_worse_of_two_roles_decides_and_both_are_reported() -> None:
    blind = replace(FINE, active=Verdict("False", "FailedGetExternalMetric", "no pod serves yet"))
    found = autoscaling_result({P: blind, D: FINE}, MeasuredLoad())
    assert (found.status, found.reason) == ("False", "FailedGetExternalMetric")
    assert found.message.startswith("P: ")
    assert "D: The replica count follows the load." in found.message


def test_the_reason_is_that_of_the_role_that_gets_least_of_what_it_wants() -> None:
    few, many = (replace(FINE, limited=Verdict("True", reason)) for reason in ("TooFewReplicas", "TooManyReplicas"))
    for p, d, reason in ((FINE, few, "TooFewReplicas"), (few, many, "TooManyReplicas"), (FINE, FINE, "Active")):
        assert autoscaling_result({P: p, D: d}, MeasuredLoad()).reason == reason


def test_loads_are_shown_as_users_write_their_targets() -> None:
    loads = (
        Load("pdinference_kv_demand", 15, 800),
        Load("pdinference_queued_prompt_tokens", None, 8_000_000),
        Load("cpu", 5, 70_000),
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
    blind = replace(FINE, active=Verdict("False", "NoMetric", "no such metric"))
    found = autoscaling_result({D: blind}, MeasuredLoad(), limited={D: Limit(LimitReason.GPU_BUDGET, 6, 4, "In use.")})
    assert (found.status, found.reason) == ("False", "NoMetric")
