"""A link between P and D that failed is paused, and one request tries it."""

from pdinference.api.names import Role
from pdinference.router.links import Links
from pdinference.router.pod import Observed, Pod

PAUSE = 60.0


def pod(name: str, role: Role) -> Pod:
    return Pod(Observed(name, name, role, "a:1", ready=True))


P, OTHER_P = pod("p1", Role.PARAMETER), pod("p2", Role.PARAMETER)
D, OTHER_D = pod("d1", Role.DECODE), pod("d2", Role.DECODE)


def test_only_the_link_that_failed_is_paused() -> None:
    links = Links(lambda: 0.0)
    links.failed(P, D)
    assert not links.usable(P, D)
    assert links.usable(P, OTHER_D)
    assert links.usable(OTHER_P, D)


def test_one_request_at_a_time_tries_it_after_the_pause() -> None:
    now = 0.0
    links = Links(lambda: now)
    links.failed(P, D)
    now = PAUSE
    assert links.usable(P, D)
    links.used(P, D)
    assert not links.usable(P, D)
    links.worked(P, D)
    links.used(P, D)
    assert links.usable(P, D)


def test_a_link_that_never_failed_is_not_paused_by_its_use() -> None:
    links = Links(lambda: 0.0)
    links.used(P, D)
    assert links.usable(P, D)
