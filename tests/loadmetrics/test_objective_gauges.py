"""Gauges of objectives, of the use of roles, and of the cost."""

from pdinference.api.latencies import ABANDONED_BOUNDS, FIRST_TOKEN_BOUNDS, OUTPUT_TOKEN_BOUNDS
from pdinference.api.names import Role
from pdinference.loadmetrics.objective_gauges import HELP, GaugeSample, objective_samples
from pdinference.planning.objectives import StatedObjectives, StreamCounts
from pdinference.planning.utilization import RoleUse, Utilization


def streams(good: int, slow: int) -> StreamCounts:
    """So many answers with the shortest times, and so many with times above the longest bound."""
    first, output, left = (
        [float(good), *[0.0] * (len(bounds) - 1), float(slow)]
        for bounds in (FIRST_TOKEN_BOUNDS, OUTPUT_TOKEN_BOUNDS, ABANDONED_BOUNDS)
    )
    return StreamCounts(300, first, output, [0.0] * len(left))


def test_each_known_value_is_a_sample_with_help() -> None:
    use = Utilization(
        {Role.PARAMETER: RoleUse(busy=0.5), Role.DECODE: RoleUse(busy=0.25, tokens_per_gpu=900.0)}, cost_per_million=0.4
    )
    found = list(objective_samples(StatedObjectives(1.0, 1.0, 99), streams(3, 1), use))
    assert found == [
        GaugeSample("pdinference_objective_attainment_ratio", ("objective", "ttft"), 0.75),
        GaugeSample("pdinference_objective_attainment_ratio", ("objective", "tpot"), 0.75),
        GaugeSample("pdinference_role_busy_ratio", ("inference_role", "parameter"), 0.5),
        GaugeSample("pdinference_role_busy_ratio", ("inference_role", "decode"), 0.25),
        GaugeSample("pdinference_role_tokens_per_second_per_gpu", ("inference_role", "decode"), 900.0),
        GaugeSample("pdinference_cost_per_million_tokens", None, 0.4),
    ]
    assert {sample.metric for sample in found} == HELP.keys()


def test_what_is_unknown_has_no_sample() -> None:
    assert not list(objective_samples(None, streams(3, 1), Utilization()))
    assert not list(objective_samples(StatedObjectives(1.0, None, 99), None, Utilization({Role.DECODE: RoleUse()})))
