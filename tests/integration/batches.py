"""A PDBatch in a cluster; the test plays kubelet and runner."""

import json
from typing import Any

from pdinference.api import names
from pdinference.cluster.client import Json
from pdinference.cluster.kinds import BATCH, JOB, POD
from tests.integration.world import World
from tests.waiting import until

Spec = dict[str, Any]
RUNNER_ADDRESS = "127.0.77.1"  # of this machine, so that the operator reaches the runner that the test plays


def document(world: World, name: str = "nightly", **spec: Any) -> Json:
    minimal: Spec = {
        "inferenceRef": {"name": "llama"},
        "input": {"configMap": {"name": "prompts", "key": "in.jsonl"}},
        "output": {"persistentVolumeClaim": {"claimName": "results"}},
    }
    metadata = {"name": name, "namespace": world.namespace}
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.BATCH_KIND,
        "metadata": metadata,
        "spec": {**minimal, **spec},
    }


async def create(world: World, **spec: Any) -> None:
    await world.api.create(BATCH.path(world.namespace), document(world, **spec))


async def status(world: World) -> Json:
    found: Json = (await world.get(BATCH, "nightly") or {}).get("status", {})
    return found


async def phase(world: World, wanted: str) -> None:
    async def reached() -> bool:
        return (await status(world)).get("phase") == wanted

    await until(reached, f"the batch is {wanted}")


async def job(world: World) -> Json:
    """The Job, as soon as there is one."""
    await until(lambda: job_exists(world), "there is a Job")
    return await world.api.get(JOB.path(world.namespace, "nightly-batch"))


async def job_exists(world: World) -> bool:
    return await world.get(JOB, "nightly-batch") is not None


async def pod(world: World) -> str:
    """Path of the Job's pod, as soon as there is one."""
    selector = f"{names.LABEL_BATCH}=nightly"
    found: list[Json] = []

    async def made() -> bool:
        found[:] = (await world.api.get(POD.path(world.namespace), labelSelector=selector))["items"]
        return bool(found)

    await until(made, "the Job has a pod")
    return POD.path(world.namespace, found[0]["metadata"]["name"])


async def run_pod(world: World) -> str:
    path = await pod(world)
    running = {"phase": "Running", "podIP": RUNNER_ADDRESS, "podIPs": [{"ip": RUNNER_ADDRESS}]}
    await world.api.merge(path + "/status", {"status": running})
    return path


async def end_pod(world: World, path: str, code: int, **counts: Any) -> None:
    """What the kubelet writes when the runner's process ends."""
    ended = {
        "exitCode": code,
        "reason": "Completed" if code == 0 else "Error",
        "message": json.dumps(counts),
        "startedAt": "2026-11-21T00:00:00Z",
        "finishedAt": "2026-11-21T00:01:00Z",
    }
    container = {
        "name": names.RUNNER_CONTAINER,
        "image": "x",
        "imageID": "x",
        "ready": False,
        "restartCount": 0,
        "state": {"terminated": ended},
    }
    status = {"phase": "Failed" if code else "Succeeded", "containerStatuses": [container]}
    await world.api.merge(path + "/status", {"status": status})
