from itertools import chain

import pytest

from benchmarks.autoscaling.scaling import Autoscaler, Autoscaling, every, pod_seconds, preset_hpa
from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.planning.scaling.scale_spec import RoleScale, ScaleSpec
from pdinference_advise.simulation.clock import Clock
from pdinference_advise.simulation.fleet import SimulatedFleet
from tests.advise.simulation.fleets import pods, poisson

RANGE = RoleScale(1, 1, 6)


def autoscaler(clock: Clock, fleet: SimulatedFleet, budget: int | None = None) -> Autoscaler:
    spec = ScaleSpec(dict.fromkeys(ENGINE_ROLES, RANGE), budget=budget)
    return Autoscaler(
        clock, fleet, Autoscaling(spec, {role: preset_hpa(role, RANGE) for role in ENGINE_ROLES}, lambda: 60.0)
    )


def test_presets_add_pods_under_load_and_remove_them_after_it() -> None:
    clock = Clock()
    fleet = SimulatedFleet(clock, pods())
    scaled = autoscaler(clock, fleet)
    fleet.load(chain(poisson(20, 600), poisson(0.5, 3000, begin=600)))
    clock.run(600)
    busy = {role: len(scaled.pods(role)) for role in ENGINE_ROLES}
    clock.run(3600)
    assert busy[Role.PARAMETER] >= 3
    assert {role: len(scaled.pods(role)) for role in ENGINE_ROLES} == dict.fromkeys(ENGINE_ROLES, 1)
    gone = [pod for role in ENGINE_ROLES for pod in fleet.every(role) if pod.draining]
    assert gone
    assert all(pod.gone_at is not None for pod in gone)
    # The oldest pods stay, and each pod counts from its creation to its end.
    assert not any(fleet.every(role)[0].draining for role in ENGINE_ROLES)
    assert 2 * 3600 < pod_seconds(fleet, 3600) < 3600 * (2 + len(gone))


@pytest.mark.parametrize("budget", [2, 4])
def test_a_budget_holds_at_every_moment(budget: int) -> None:
    clock = Clock()
    fleet = SimulatedFleet(clock, pods())
    autoscaler(clock, fleet, budget)
    most: list[int] = []
    every(clock, 0.5, lambda: most.append(sum(p.gone_at is None for r in ENGINE_ROLES for p in fleet.every(r))))
    fleet.load(poisson(12, 300))
    clock.run(900)
    assert max(most) == budget
