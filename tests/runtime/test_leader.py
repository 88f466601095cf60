"""At most one leader, which stops before the next one starts."""

import asyncio

import pytest

from pdinference.cluster.errors import ApiError
from pdinference.runtime.leader import LEASE_NAME, Leader, LeaderLostError, LeaseTiming
from tests.cluster.fake_api import FakeApi

pytestmark = pytest.mark.virtual_time

PATH = f"/apis/coordination.k8s.io/v1/namespaces/ops/leases/{LEASE_NAME}"
QUICK = LeaseTiming(duration=0.5, renew_deadline=0.3, retry=0.02)


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


def candidate(api: FakeApi, identity: str) -> Leader:
    return Leader(api, namespace="ops", identity=identity, timing=QUICK)


async def elected(leader: Leader, within: float = 2.0) -> bool:
    try:
        async with asyncio.timeout(within):
            await leader.acquire()
    except TimeoutError:
        return False
    return True


async def test_the_first_candidate_is_elected(api: FakeApi) -> None:
    leader = candidate(api, "a")
    assert await elected(leader)
    assert leader.leads
    assert api.objects[PATH]["spec"]["holderIdentity"] == "a"


async def test_a_second_one_waits_while_the_first_renews(api: FakeApi) -> None:
    first, second = candidate(api, "a"), candidate(api, "b")
    await elected(first)
    holding = asyncio.create_task(first.hold())
    assert not await elected(second, within=1.2)
    holding.cancel()


async def test_a_leader_that_died_is_replaced_when_its_lease_expired(api: FakeApi) -> None:
    await elected(candidate(api, "a"))
    second = candidate(api, "b")
    assert await elected(second)
    assert api.objects[PATH]["spec"]["leaseTransitions"] == 1


async def test_a_released_lease_is_taken_at_once(api: FakeApi) -> None:
    first, second = candidate(api, "a"), candidate(api, "b")
    await elected(first)
    await first.release()
    assert await elected(second, within=0.2)


async def test_a_lease_whose_renewal_was_interrupted_after_it_was_written_is_released(api: FakeApi) -> None:
    """As by SIGTERM: the version that the leader knows is then outdated, or it knows none yet."""
    create, replace = api.create, api.replace
    written = asyncio.Event()

    async def unanswered(path: str, manifest: dict[str, object]) -> dict[str, object]:
        await (replace if path == PATH else create)(path, manifest)
        written.set()
        await asyncio.Event().wait()
        raise AssertionError

    for verb in ("create", "replace"):
        leader = candidate(api, "a")
        if verb == "replace":
            await elected(leader)
        written.clear()
        setattr(api, verb, unanswered)
        working = asyncio.create_task(leader.acquire() if verb == "create" else leader.hold())
        await written.wait()
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        api.create, api.replace = create, replace  # type: ignore[method-assign]
        assert api.objects[PATH]["spec"]["holderIdentity"] == "a"
        await leader.release()
        assert api.objects[PATH]["spec"]["holderIdentity"] == "", verb


async def test_a_lease_whose_renewal_failed_is_released(api: FakeApi) -> None:
    leader = candidate(api, "a")
    await elected(leader)
    holding = asyncio.create_task(leader.hold())
    await asyncio.sleep(0)
    api.fail("replace", PATH, ApiError(500, "Internal", "x"))
    await asyncio.sleep(QUICK.retry * 1.5)
    holding.cancel()
    await asyncio.gather(holding, return_exceptions=True)
    await leader.release()
    assert api.objects[PATH]["spec"]["holderIdentity"] == ""


async def test_the_lease_of_another_candidate_is_not_released(api: FakeApi) -> None:
    """Neither by one that waited for it, nor by one that lost it."""
    first, second, waiting = candidate(api, "a"), candidate(api, "b"), candidate(api, "c")
    await elected(first)
    await asyncio.sleep(QUICK.duration)
    assert await elected(second)
    await first.release()
    assert not await elected(waiting, within=0.1)
    await waiting.release()
    assert api.objects[PATH]["spec"]["holderIdentity"] == "b"


async def test_a_release_ends_though_the_lease_changes_or_the_api_server_hangs(api: FakeApi) -> None:
    leader = candidate(api, "a")
    await elected(leader)
    conflict = ApiError(409, "Conflict", "x")
    api.fail("replace", PATH, conflict, conflict, conflict)
    api.requests.clear()
    await leader.release()
    assert api.requests["replace"] == 2

    async def hang(path: str) -> dict[str, object]:
        await asyncio.sleep(60)
        return {}

    api.get = hang  # type: ignore[method-assign, assignment]
    began = asyncio.get_running_loop().time()
    await leader.release()
    assert asyncio.get_running_loop().time() - began < QUICK.duration


async def test_api_server_errors_before_the_deadline_keep_leadership(api: FakeApi) -> None:
    leader = candidate(api, "a")
    await elected(leader)
    api.fail("replace", PATH, ApiError(500, "Internal", "x"), ApiError.unreachable(ConnectionResetError("reset")))
    holding = asyncio.create_task(leader.hold())
    await asyncio.sleep(0.2)
    assert not holding.done()
    assert leader.leads
    holding.cancel()


async def test_a_leader_that_cannot_renew_gives_up_before_its_lease_expires(api: FakeApi) -> None:
    leader = candidate(api, "a")
    await elected(leader)

    async def hang(path: str, manifest: object, **query: str) -> dict[str, object]:
        await asyncio.sleep(60)
        return {}

    api.replace = hang  # type: ignore[method-assign]
    began = asyncio.get_running_loop().time()
    with pytest.raises(LeaderLostError):
        await leader.hold()
    assert asyncio.get_running_loop().time() - began < QUICK.duration
    assert not leader.leads


async def test_the_lease_counts_from_the_request_and_not_from_a_late_answer(api: FakeApi) -> None:
    leader = candidate(api, "a")
    await elected(leader)
    replace, written = api.replace, list[float]()

    async def late_then_never(path: str, manifest: dict[str, object], **query: str) -> dict[str, object]:
        if written:
            await asyncio.sleep(60)
        found = await replace(path, manifest, **query)
        written.append(asyncio.get_running_loop().time())
        await asyncio.sleep(QUICK.renew_deadline - 0.01)
        return found

    api.replace = late_then_never  # type: ignore[method-assign]
    with pytest.raises(LeaderLostError):
        await leader.hold()
    assert asyncio.get_running_loop().time() - written[0] < QUICK.duration


async def test_a_late_answer_to_the_first_request_elects_nobody_without_a_renewal(api: FakeApi) -> None:
    leader, create = candidate(api, "a"), api.create

    async def late(path: str, manifest: dict[str, object], **query: str) -> dict[str, object]:
        found = await create(path, manifest, **query)
        await asyncio.sleep(QUICK.renew_deadline)
        return found

    api.create = late  # type: ignore[method-assign]
    await elected(leader)
    assert api.requests["replace"] == 1
    holding = asyncio.create_task(leader.hold())
    await asyncio.sleep(QUICK.renew_deadline)
    assert not holding.done()
    holding.cancel()


async def test_a_leader_whose_lease_was_taken_stops_at_once(api: FakeApi) -> None:
    leader = candidate(api, "a")
    await elected(leader)
    holding = asyncio.create_task(leader.hold())
    stolen = api.objects[PATH]
    api.put(PATH, {**stolen, "spec": {**stolen["spec"], "holderIdentity": "thief"}})
    with pytest.raises(LeaderLostError, match="thief"):
        async with asyncio.timeout(1):
            await holding


async def test_a_leader_that_was_suspended_knows_that_it_may_not_write(api: FakeApi) -> None:
    leader = candidate(api, "a")
    await elected(leader)
    await asyncio.sleep(QUICK.duration + 0.1)
    assert not leader.leads


async def test_of_two_candidates_at_the_same_time_one_is_elected(api: FakeApi) -> None:
    first, second = candidate(api, "a"), candidate(api, "b")
    outcome = await asyncio.gather(elected(first, within=0.3), elected(second, within=0.3))
    assert sorted(outcome) == [False, True]
