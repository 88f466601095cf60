"""Output of a PDBatch in a ConfigMap: a real runner with its service account on a real API server."""

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.cluster.build import binary
from pdinference.cluster.client import Json
from pdinference.cluster.errors import ApiError
from pdinference.cluster.kinds import CONFIG_MAP, JOB
from pdinference.runner.run import Exit
from tests.integration.batches import create, end_pod, job, phase, run_pod, status
from tests.integration.operators import Operators
from tests.integration.world import World
from tests.runner.service import FakeService, line, write_lines
from tests.waiting import ended, until

OUTPUT = {"configMap": {"name": "answers"}}
COUNT = 30


async def account(world: World, folder: Path) -> Path:
    """A kubeconfig with the token that a kubelet would mount into the runner's pod."""
    name = (await job(world))["spec"]["template"]["spec"]["serviceAccountName"]
    path = f"/api/v1/namespaces/{world.namespace}/serviceaccounts/{name}/token"
    token = (await world.api.create(path, {"spec": {}}))["status"]["token"]
    config = yaml.safe_load(world.cluster.kubeconfig.read_text())
    for user in config["users"]:
        user["user"] = {"token": token}
    file = folder / "kubeconfig"
    file.write_text(yaml.safe_dump(config))
    return file


class Runner:
    """The kubelet's command of the Job, with paths and addresses of this machine."""

    def __init__(self, world: World, service: FakeService, folder: Path, kubeconfig: Path) -> None:
        self._world = world
        self._input = write_lines(folder / "input.jsonl", [line(number) for number in range(COUNT)])
        self._service = service
        self._report = folder / "report"
        self._kubeconfig = kubeconfig

    async def start(self) -> asyncio.subprocess.Process:
        (container,) = (await job(self._world))["spec"]["template"]["spec"]["containers"]
        other = ("--input=", "--input-root=", "--url=", "--metrics-port=", "--report=", "--concurrency=")
        arguments = [argument for argument in container["args"] if not argument.startswith(other)]
        return await asyncio.create_subprocess_exec(
            Path(sys.executable).with_name("pdinference"),
            *("batch", "run", *arguments, f"--input={self._input}", f"--url={self._service.url}"),
            *("--metrics-port=0", f"--report={self._report}", "--concurrency=4"),
            env={"KUBECONFIG": str(self._kubeconfig)},
            stderr=subprocess.PIPE,
        )

    @property
    def last_words(self) -> Json:
        words: Json = json.loads(self._report.read_text())
        return words


async def answers(world: World) -> list[str]:
    """custom_ids of the lines that are there."""
    text: str = ((await world.get(CONFIG_MAP, "answers")) or {}).get("data", {}).get("output.jsonl", "")
    return [json.loads(row)["custom_id"] for row in text.splitlines()]


async def test_a_killed_runner_leaves_each_answer_once_and_may_do_nothing_else(
    world: World, operators: Operators, tmp_path: Path
) -> None:
    await operators.start("--batch-config-maps")
    await world.apply()
    await world.serving()
    await create(world, output=OUTPUT)
    kubeconfig = await account(world, tmp_path)
    async with FakeService().serve() as service:
        process = await Runner(world, service, tmp_path, kubeconfig).start()
        service.pause_at = COUNT // 2  # the rest hangs, so that the signal finds requests under way

        async def some() -> bool:
            return len(await answers(world)) >= 5

        await until(some, "there are answers")
        process.send_signal(signal.SIGKILL)
        await ended(process, "the killed runner")
    kept = len(await answers(world))
    # A service of its own: the killed runner has left requests in the sockets of the first one.
    async with FakeService().serve() as service:
        runner = Runner(world, service, tmp_path, kubeconfig)
        process = await runner.start()
        await ended(process, "the second runner")
        assert service.asked.total() == COUNT - kept, "what was stored is not asked again"
    assert process.returncode == Exit.DONE
    assert sorted(await answers(world)) == sorted(f"request-{number}" for number in range(COUNT))
    await end_pod(world, await run_pod(world), 0, **runner.last_words)
    await phase(world, "Complete")
    assert (await status(world))["progress"] == f"{COUNT}/{COUNT}"
    await may_only_patch_its_own(world, kubeconfig)


async def may_only_patch_its_own(world: World, kubeconfig: Path) -> None:
    def can(verb: str, what: str) -> bool:
        arguments = ["auth", "can-i", verb, what, f"--namespace={world.namespace}", f"--kubeconfig={kubeconfig}"]
        return subprocess.run([binary("kubectl"), *arguments], check=False, capture_output=True).returncode == 0

    assert await asyncio.to_thread(can, "patch", "configmaps/answers")
    for verb, what in (
        ("patch", "configmaps/prompts"),
        ("get", "configmaps/answers"),
        ("list", "configmaps"),
        ("create", "configmaps"),
        ("get", "secrets"),
        ("patch", "jobs/nightly-batch"),
    ):
        assert not await asyncio.to_thread(can, verb, what), f"{verb} {what}"


async def test_a_configmap_that_was_there_before_is_left_alone(world: World, operators: Operators) -> None:
    stranger: dict[str, Any] = {"metadata": {"name": "answers"}, "data": {"config": "precious"}}
    await world.api.create(CONFIG_MAP.path(world.namespace), stranger)
    await operators.start("--batch-config-maps")
    await world.apply()
    await world.serving()
    await create(world, output=OUTPUT)

    async def told() -> bool:
        found = (await status(world)).get("conditions", ())
        return any(c["reason"] == "NameConflict" and "spec.output.configMap.name" in c["message"] for c in found)

    await until(told, "the conflict is told")
    with pytest.raises(ApiError, match="not found"):
        await world.api.get(JOB.path(world.namespace, "nightly-batch"))
    assert ((await world.get(CONFIG_MAP, "answers")) or {})["data"] == {"config": "precious"}
    with pytest.raises(ApiError, match="not found"):
        await world.api.get(f"/apis/rbac.authorization.k8s.io/v1/namespaces/{world.namespace}/roles/nightly-batch")
