"""A model that is downloaded first: the real API server, the real Job controller, the real download."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp.test_utils import TestServer

from e2e.hub import Hub
from pdinference.api import names
from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.cluster.kinds import DEPLOYMENT, JOB, POD, STATEFUL_SET
from tests.integration.calm import calm
from tests.integration.oldest import needs_image_volumes
from tests.integration.operators import Operators
from tests.integration.world import World
from tests.memory.configs import LLAMA_1B
from tests.waiting import until

REPOSITORY = "tiny/model"
NOW = "2026-11-21T00:00:00Z"


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[str]:
    """Address of a hub that has a model."""
    folder = tmp_path / "hub"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA_1B))
    server = TestServer(Hub(folder, REPOSITORY).application())
    await server.start_server()
    yield str(server.make_url("")).rstrip("/")
    await server.close()


def model(repository: str = REPOSITORY) -> dict[str, Any]:
    cache = {"persistentVolumeClaim": {"claimName": "models"}}
    return {"source": {"huggingFace": {"repository": repository}}, "cache": cache}


async def jobs(world: World) -> list[str]:
    return [name for kind, name in await world.children() if kind == JOB.name]


async def job_pods(world: World) -> list[Any]:
    return await world.pods(Role.MODEL)


async def play_kubelet(world: World, hub: str, folder: Path) -> None:
    """Run what the Job's pod would, with the rights of its account, and say that the pod succeeded."""
    await until(lambda: _truth(job_pods(world)), "the Job has a pod")
    (pod,) = await job_pods(world)
    (container,) = pod["spec"]["containers"]
    arguments = [a for a in container["args"] if not a.startswith("--folder=")]
    process = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).with_name(container["command"][0])),
        *container["command"][1:],
        *arguments,
        f"--folder={folder / 'cache'}",
        env={**os.environ, "HF_ENDPOINT": hub, "KUBECONFIG": str(await _kubeconfig(world, pod, folder))},
        stderr=asyncio.subprocess.PIPE,
    )
    _, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    path = POD.path(world.namespace, pod["metadata"]["name"]) + "/status"
    await world.api.merge(path, {"status": {"phase": "Succeeded"}})


async def _truth(found: Any) -> bool:
    return bool(await found)


async def _kubeconfig(world: World, pod: Any, folder: Path) -> Path:
    """The credentials that the kubelet would mount."""
    account = pod["spec"]["serviceAccountName"]
    path = f"/api/v1/namespaces/{world.namespace}/serviceaccounts/{account}/token"
    token = (await world.api.create(path, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}))["status"]
    config = yaml.safe_load(world.cluster.kubeconfig.read_text())
    for user in config["users"]:
        user["user"] = {"token": token["token"]}
    file = folder / "account.yaml"
    file.write_text(yaml.safe_dump(config))
    return file


async def test_p_and_d_start_when_the_model_is_there(
    world: World, operators: Operators, hub: str, tmp_path: Path
) -> None:
    await operators.start()
    await world.apply(model=model())
    await world.settled()
    await until(lambda: _truth(job_pods(world)), "the Job has a pod")
    assert {kind for kind, _ in await world.children()} & {STATEFUL_SET.name, "PersistentVolumeClaim"} == set()
    assert (await world.condition("ParameterReady"))["reason"] == "ModelNotReady"

    await play_kubelet(world, hub, tmp_path)

    async def there() -> bool:
        return (await world.condition("ModelReady")).get("status") == "True"

    await until(there, "the model is ready")
    status = await world.status()
    assert status["model"]["facts"]["config"]["num_hidden_layers"] == LLAMA_1B["num_hidden_layers"]
    kinds = [kind for kind, name in await world.children() if name != f"llama-{Role.ROUTER}"]
    assert STATEFUL_SET.name in kinds
    assert DEPLOYMENT.name in kinds
    await calm(world)


async def test_progress_reaches_the_status_and_rest_costs_nothing(world: World, operators: Operators) -> None:
    await operators.start()
    await world.apply(model=model())
    await world.settled()
    (job,) = await jobs(world)
    report = {"phase": "Downloading", "downloadedBytes": 2**30, "totalBytes": 2**32}
    annotations = {names.ANNOTATION_MODEL: json.dumps(report)}
    await world.api.merge(JOB.path(world.namespace, job), {"metadata": {"annotations": annotations}})

    async def told() -> bool:
        return bool((await world.status()).get("model", {}).get("downloadedBytes") == 2**30)

    await until(told, "the progress is told")
    await calm(world)


async def test_another_model_is_another_job(world: World, operators: Operators) -> None:
    await operators.start()
    await world.apply(model=model())
    await world.settled()
    (first,) = await jobs(world)
    await world.apply(model=model("tiny/other"))

    async def replaced() -> bool:
        found = await jobs(world)
        return len(found) == 1 and found != [first]

    await until(replaced, "there is another Job, and the old one is gone")

    async def no_old_pods() -> bool:
        return {pod["metadata"]["labels"]["batch.kubernetes.io/job-name"] for pod in await job_pods(world)} == set(
            await jobs(world)
        )

    await until(no_old_pods, "the pods of the old Job are gone")


async def test_an_adapter_of_too_high_a_rank_is_found_when_the_job_has_read_it(
    world: World, operators: Operators, hub: str, tmp_path: Path
) -> None:
    (tmp_path / "hub" / "adapter_config.json").write_text(json.dumps({"r": 64, "target_modules": ["q_proj"]}))
    await operators.start()
    lora = {"adapters": [{"name": "sql", "path": REPOSITORY}]}
    await world.apply(model={**model(), "lora": lora})
    await play_kubelet(world, hub, tmp_path)

    async def refused() -> bool:
        return (await world.condition("Progressing")).get("reason") == "InvalidSpec"

    await until(refused, "the rank is known")
    message = (await world.condition("Progressing"))["message"]
    assert "spec.model.lora.adapters[0]: Adapter sql has rank 64, but spec.model.lora.maxRank is 16" in message
    await world.apply(model={**model(), "lora": {**lora, "maxRank": 64}})

    async def accepted() -> bool:
        return (await world.condition("Progressing")).get("reason") != "InvalidSpec"

    await until(accepted, "what the message says helps")


WHOLE = {"state": {"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": NOW, "finishedAt": NOW}}}
SAID = (
    "/models has no config.json, which vLLM needs; it holds README.md. Does spec.model.source.image.path name the right"
)
DAMAGED = {
    "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s restarting failed container"}},
    "lastState": {"terminated": {"exitCode": 1, "reason": "Error", "message": f"Error: {SAID} folder?\n"}},
}


async def play_look(world: World, revision: str, ended: dict[str, Any]) -> None:
    """Set the status of the container that checks the model, in the pods of P and D, as the kubelet does."""
    for role in ENGINE_ROLES:

        async def exists(role: Role = role) -> bool:
            return bool(await world.pods(role, revision))

        await until(exists, f"{revision} has a {role} pod")
        for pod in await world.pods(role, revision):
            (look,) = pod["spec"]["initContainers"]
            assert look["command"] == ["pdinference", "model", "look"]
            counted = {"ready": False, "restartCount": 1, "imageID": "", "lastState": {}}
            status = {**counted, "name": look["name"], "image": look["image"], **ended}
            path = POD.path(world.namespace, pod["metadata"]["name"]) + "/status"
            await world.api.merge(path, {"status": {"initContainerStatuses": [status]}})


@needs_image_volumes
async def test_a_broken_model_on_a_volume_is_reported_while_the_old_one_serves(
    world: World, operators: Operators
) -> None:
    async def told(status: str, reason: str, text: str) -> bool:
        found = await world.condition("ModelReady")
        return (found.get("status"), found.get("reason")) == (status, reason) and text in found["message"]

    async def apply(tag: str) -> None:
        """The real scheduler, which has no node to give, would say so of each pod."""
        unseen = {"placement": {"schedulerName": "nobody"}}
        source = {"image": {"reference": f"registry.example/model:{tag}"}}
        await world.apply(model={"source": source}, parameter=unseen, decode=unseen)

    await operators.start()
    await apply("first")
    first = await world.serving()
    await until(lambda: told("Unknown", "NotChecked", ""), "nobody has looked")
    await play_look(world, first, WHOLE)
    await until(lambda: told("True", "Checked", ""), "the model is checked")

    await apply("second")
    await world.settled()
    second = (await world.status())["revision"]
    await play_look(world, second, DAMAGED)
    await until(lambda: told("False", "NoUsableModel", f"has no model to load: {SAID} folder?"), "the fault is told")

    async def event() -> bool:
        events = (await world.api.get(f"/apis/events.k8s.io/v1/namespaces/{world.namespace}/events"))["items"]
        return any(e["type"] == "Warning" and e["reason"] == "NoUsableModel" and SAID in e["note"] for e in events)

    await until(event, "an event tells it")
    status = await world.status()
    assert (status["servingRevision"], status["revision"]) == (first, second)
    assert (await world.condition("Ready"))["status"] == "True"
    assert f"Revision {first} keeps answering" in (await world.condition("Progressing"))["message"]
    assert await world.pods(Role.DECODE, first)
    await calm(world)

    await play_look(world, second, WHOLE)
    await until(lambda: told("True", "Checked", ""), "the model was mended")
