"""How long a model has been idle."""

from pdinference.router.activity import Activity
from pdinference.router.pod import Observed
from pdinference.router.pods import Pods
from tests.router.engines import D, P

BOTH = {name: Observed(name, name, role, "a:1", ready=True) for name, role in (("p", P), ("d", D))}


class World:
    def __init__(self) -> None:
        self.now = 100.0
        self.pods = Pods(lambda: self.now)
        self.activity = Activity(self.pods, 60, clock=lambda: self.now)

    def idle_after(self, seconds: float) -> float:
        self.now += seconds
        return self.activity.idle_seconds

    def gives_up(self, *, after: float) -> None:
        with self.activity.request():
            self.now += after


def test_idle_is_the_time_since_the_last_request() -> None:
    world = World()
    world.pods.observe(BOTH)
    assert world.idle_after(5) == 5
    with world.activity.request():
        assert world.idle_after(5) == 0
    assert world.idle_after(3) == 3


def test_the_time_starts_when_there_are_pods_for_the_first_time() -> None:
    world = World()
    world.now += 1200
    world.pods.observe(BOTH)
    assert world.activity.idle_seconds == 0
    assert world.idle_after(5) == 5
    world.pods.observe({})
    world.pods.observe(BOTH)
    assert world.activity.idle_seconds == 5


def test_a_client_that_gave_up_counts_until_its_maximum_wait() -> None:
    world = World()
    world.gives_up(after=5)
    assert world.idle_after(54) == 0
    assert world.idle_after(1) == 55


def test_a_client_that_gave_up_has_the_whole_time_to_come_back() -> None:
    world = World()
    world.pods.observe(BOTH)
    world.pods.observe({})
    world.gives_up(after=5)
    world.now += 20
    world.pods.observe(BOTH)
    assert world.activity.idle_seconds == 0
    assert world.idle_after(7) == 7
