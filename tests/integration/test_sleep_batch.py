"""A PDBatch for a sleeping resource, with a real runner, a router, and the real Job controller."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

from pdinference.api.names import METRIC_QUEUED_REQUESTS
from pdinference.runner.run import Exit
from tests.integration.batches import create, end_pod, job, phase, run_pod, status
from tests.integration.operators import Operators
from tests.integration.sleeping import SLEEPY, awake, is_ready, router, tell
from tests.integration.world import World
from tests.runner.service import line, write_lines
from tests.waiting import until

COUNT = 12
LIMIT = 4
CONCURRENCY = 8
"""More requests than the queue holds, so that some are rejected with Retry-After."""


async def start_runner(world: World, folder: Path, url: str) -> asyncio.subprocess.Process:
    """The kubelet's command of the Job, with paths and addresses of this machine."""
    source = write_lines(folder / "input.jsonl", [line(number) for number in range(COUNT)])
    (container,) = (await job(world))["spec"]["template"]["spec"]["containers"]
    other = ("--input=", "--input-root=", "--output=", "--output-root=", "--url=", "--report=")
    arguments = [argument for argument in container["args"] if not argument.startswith(other)]
    return await asyncio.create_subprocess_exec(
        Path(sys.executable).with_name("pdinference"),
        *("batch", "run", *arguments, f"--url={url}"),
        *(f"--input={source}", f"--output={folder / 'output'}", f"--report={folder / 'report'}"),
        stderr=subprocess.PIPE,
    )


async def says(world: World, counts: str, words: str) -> None:
    """Wait until the status of the batch has these counts, and these words."""

    async def told() -> bool:
        found = await status(world)
        running = next((c["message"] for c in found.get("conditions", ()) if c["type"] == "Running"), "")
        return found.get("progress") == counts and words in running

    await until(told, f"the batch says {counts} and {words!r}")


async def test_a_batch_wakes_the_pair_and_waits_in_its_queue(
    world: World, operators: Operators, tmp_path: Path
) -> None:
    async with router(queue=LIMIT, wait=120) as front:
        await operators.start()
        await world.apply(**SLEEPY)
        revision = await world.serving()
        await tell(world, revision)
        await is_ready(world, "Asleep")
        front.observe("p", "d")

        await create(world, concurrency=CONCURRENCY)  # asleep is Ready: it need not wait
        pod = await run_pod(world)
        runner = await start_runner(world, tmp_path, front.url)
        await awake(world, revision)
        await says(world, f"0/{COUNT}", "They may have to wait: PDInference llama is not Ready. P: 0 of 1 pods ready")

        async def queue_is_full() -> bool:
            return await front.metric(METRIC_QUEUED_REQUESTS) == LIMIT

        await until(queue_is_full, "as many requests wait as may")
        assert not front["d"].bodies

        await world.make_ready(revision)
        front.observe()
        _, log = await runner.communicate()
        assert runner.returncode == Exit.DONE, log.decode()
        assert len(front["d"].bodies) == COUNT
        await end_pod(world, pod, 0, **json.loads((tmp_path / "report").read_text()))
        await phase(world, "Complete")
        await is_ready(world, "Asleep")
    found = await status(world)
    assert (found["completed"], found["failed"], found["total"]) == (COUNT, 0, COUNT)
    answers = [json.loads(row) for row in (tmp_path / "output" / "output.jsonl").read_text().splitlines()]
    assert sorted(answer["custom_id"] for answer in answers) == sorted(f"request-{n}" for n in range(COUNT))
