"""`pdinference check` on a real API server, before and after the operator registered its webhook."""

import asyncio
import os
import sys
from pathlib import Path

from pdinference.cluster.kinds import RESOURCE
from tests.integration.operators import Operators
from tests.integration.webhook import Webhook
from tests.integration.world import World


async def check(world: World, *options: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).with_name("pdinference")),
        "check",
        f"--namespace={world.namespace}",
        *options,
        env={**os.environ, "KUBECONFIG": str(world.cluster.kubeconfig)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    return process.returncode or 0, output.decode()


async def test_an_installation_is_right_once_its_operator_answers(
    world: World, webhook: Webhook, operators: Operators
) -> None:
    code, words = await check(world, "--no-metrics-api", "--wait=0")
    assert (code, "an invalid PDInference was accepted" in words) == (1, True)
    assert not (await world.api.get(RESOURCE.path(world.namespace)))["items"]

    await operators.start(*webhook.flags)
    assert await check(world, "--no-metrics-api") == (0, "The webhook answers.\n")

    code, words = await check(world, "--no-webhook", "--wait=0")
    assert (code, words.startswith("Error: The metrics API does not answer as it should: ")) == (1, True)
