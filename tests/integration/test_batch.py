"""A PDBatch on a real API server with the real Job controller; the test plays kubelet and runner."""

import asyncio
from typing import Any

import pytest

from pdinference.api import names
from pdinference.cluster.errors import ApiError
from pdinference.cluster.kinds import BATCH, RESOURCE
from pdinference.runner.progress import RunProgress
from tests.integration.batches import (
    RUNNER_ADDRESS,
    Spec,
    create,
    document,
    end_pod,
    job,
    job_exists,
    phase,
    pod,
    run_pod,
    status,
)
from tests.integration.calm import QUIET_S as CALM_S
from tests.integration.calm import calm
from tests.integration.operators import Operators
from tests.integration.world import World
from tests.waiting import until

QUIET_S = 12.0
"""Longer than the operator's interval of looking at a batch."""


async def edit(world: World, **spec: Any) -> None:
    await world.api.merge(BATCH.path(world.namespace, "nightly"), {"spec": spec})


async def test_a_batch_waits_runs_progresses_and_completes(world: World, operators: Operators) -> None:
    await operators.start()
    await create(world)
    await phase(world, "Waiting")
    assert not await job_exists(world)
    await world.apply()
    await world.serving()
    made = await job(world)
    (owner,) = made["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["controller"]) == ("PDBatch", True)
    progress = RunProgress(total=20, completed=7, failed=1)
    async with progress.served(RUNNER_ADDRESS, names.RUNNER_METRICS_PORT):
        path = await run_pod(world)
        await phase(world, "Running")

        async def seen(counts: str) -> bool:
            return (await status(world)).get("progress") == counts

        await until(lambda: seen("8/20"), "progress shows")
        progress.completed = 12
        await until(lambda: seen("13/20"), "progress goes on")
    await end_pod(world, path, 0, total=20, completed=19, failed=1, message="19 of 20 requests answered; 1 failed.")
    await phase(world, "Complete")
    found = await status(world)
    assert (found["total"], found["completed"], found["failed"], found["progress"]) == (20, 19, 1, "20/20")
    assert found["startTime"] <= found["completionTime"]
    assert (await job(world))["metadata"]["uid"] == made["metadata"]["uid"]


async def test_a_batch_gets_one_key_and_the_certificate_of_the_routers_secrets(
    world: World, operators: Operators
) -> None:
    await operators.start()
    await world.apply(router={"apiKeys": {"secretName": "keys"}, "tls": {"secretName": "certificate"}})
    await world.serving()
    await create(world, apiKeyName="nightly")
    spec = (await job(world))["spec"]["template"]["spec"]
    secrets = {volume["name"]: volume["secret"] for volume in spec["volumes"] if "secret" in volume}
    assert {name: (one["secretName"], [item["key"] for item in one["items"]]) for name, one in secrets.items()} == {
        "api-key": ("keys", ["nightly"]),
        "certificate": ("certificate", ["tls.crt"]),
    }
    assert f"--url=https://llama.{world.namespace}.svc" in spec["containers"][0]["args"]


async def test_what_is_over_costs_nothing_and_a_waiting_one_writes_nothing(world: World, operators: Operators) -> None:
    await operators.start()
    await create(world)
    await phase(world, "Waiting")
    await calm(world, CALM_S)  # the operator lists once more when its watches have begun
    mark = world.audit_mark()
    await asyncio.sleep(QUIET_S)
    assert world.requests(mark) == {}


async def test_a_restarted_operator_makes_no_second_job_and_writes_nothing(world: World, operators: Operators) -> None:
    first = await operators.start()
    await world.apply()
    await world.serving()
    await create(world)
    made = await job(world)
    await pod(world)
    await phase(world, "Pending")
    await calm(world, CALM_S)  # the Job controller's own status writes are over
    assert first.stop() == 0
    mark = world.audit_mark()
    await operators.start("--runner-image=another:1")
    await asyncio.sleep(QUIET_S)
    assert world.writes(mark) == {}
    assert (await job(world))["metadata"]["uid"] == made["metadata"]["uid"]


async def test_suspend_deadline_and_lifetime_can_be_changed_and_nothing_else(
    world: World, operators: Operators
) -> None:
    await operators.start()
    await world.apply()
    await world.serving()
    await create(world)
    await job(world)
    await edit(world, suspend=True, timeoutSeconds=500, ttlSecondsAfterFinished=600)
    await phase(world, "Suspended")
    spec = (await job(world))["spec"]
    assert (spec["suspend"], spec["activeDeadlineSeconds"], spec["ttlSecondsAfterFinished"]) == (True, 500, 600)
    await edit(world, suspend=False, timeoutSeconds=None, ttlSecondsAfterFinished=None)
    await phase(world, "Pending")
    spec = (await job(world))["spec"]
    assert spec["suspend"] is False
    assert not {"activeDeadlineSeconds", "ttlSecondsAfterFinished"} & spec.keys()
    for change in (
        {"concurrency": 3},
        {"model": "other"},
        {"apiKeyName": "other"},
        {"input": {"configMap": {"name": "others"}}},
        {"resources": {"limits": {"cpu": "1"}}},
    ):
        with pytest.raises(ApiError, match="of an existing batch can be changed"):
            await edit(world, **change)


async def test_what_only_a_person_can_mend_ends_the_batch_in_the_runners_words(
    world: World, operators: Operators
) -> None:
    await operators.start()
    await world.apply()
    await world.serving()
    await create(world)
    path = await run_pod(world)
    await end_pod(world, path, 2, total=0, completed=0, failed=0, message="The input is not valid: line 2.")
    await phase(world, "Failed")
    conditions = {c["type"]: c for c in (await status(world))["conditions"]}
    assert conditions["Failed"]["status"] == "True"
    assert conditions["Failed"]["message"] == "The input is not valid: line 2."


async def test_deleting_the_batch_deletes_its_job(world: World, operators: Operators) -> None:
    await operators.start()
    await world.apply()
    await world.serving()
    await create(world)
    await job(world)
    await world.delete(BATCH, "nightly")

    async def gone() -> bool:
        return not await job_exists(world)

    await until(gone, "garbage collection has removed the Job")
    assert await world.get(RESOURCE, "llama") is not None


WRONG: list[tuple[Spec, str]] = [
    ({"input": {}}, "spec.input: .*exactly one of persistentVolumeClaim and configMap"),
    ({"input": {"persistentVolumeClaim": {"claimName": "a", "path": "../b"}}}, "path within the volume"),
    ({"output": {}}, "spec.output: .*exactly one of persistentVolumeClaim and configMap"),
    ({"output": {"configMap": {"name": "prompts"}}}, "spec.output.configMap.name: .*another ConfigMap"),
    ({"inferenceRef": {"name": "Not A Name"}}, "spec.inferenceRef.name"),
    ({"concurrency": 0}, "spec.concurrency"),
    ({"concurrency": 2000}, "spec.concurrency"),
    ({"model": "--x"}, "spec.model"),
    ({"ttlSecondsAfterFinished": 1}, "spec.ttlSecondsAfterFinished"),
]


async def test_what_is_wrong_is_refused_by_its_field(world: World) -> None:
    for spec, words in WRONG:
        with pytest.raises(ApiError, match=words):
            await create(world, **spec)


async def test_a_name_that_no_pod_could_have_is_refused(world: World) -> None:
    with pytest.raises(ApiError, match=r"metadata\.name"):
        await world.api.create(BATCH.path(world.namespace), document(world, "x" * 53))
