"""The state of an HPA in the cache."""

from pdinference.cluster.state.autoscalers import autoscaler_state
from tests.cluster.objects import Json, live, manifest


def hpa(average: str) -> Json:
    metric = {"name": "pdinference_decode_load"}
    wanted = {"metric": metric, "target": {"type": "AverageValue", "averageValue": "900m"}}
    body = manifest(
        "HorizontalPodAutoscaler",
        scaleTargetRef={"name": "llama-decode"},
        maxReplicas=8,
        metrics=[{"type": "External", "external": wanted}],
    )
    seen = {"type": "External", "external": {"metric": metric, "current": {"averageValue": average}}}
    return live(body, currentReplicas=1, currentMetrics=[seen])


def test_the_average_of_an_hpa_is_read_in_tenths_of_its_target() -> None:
    state = autoscaler_state(hpa("1800m"))
    assert state.loads[0].tenths == 20


def test_the_average_that_an_hpa_reports_of_no_pods_is_unknown() -> None:
    """It divides by zero, and writes the smallest integer (tests/integration/test_scale_target.py)."""
    state = autoscaler_state(hpa("-9223372036854775808m"))
    assert state.loads[0].tenths is None
