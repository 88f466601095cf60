"""Waits until the operator makes no more requests, and has no reason to; a restart then writes nothing."""

import asyncio
from collections.abc import Callable, Sized

from e2e.cluster.api import has_condition
from pdinference.cluster.kinds import CHILD_BY_NAME, POD
from tests.integration.operator_process import OperatorProcess
from tests.integration.operators import Operators
from tests.integration.world import World
from tests.waiting import until

QUIET_S = 3.0
"""Longer than an operator waits before it lists again after its watches began."""
_WORKLOADS = (CHILD_BY_NAME["Deployment"], CHILD_BY_NAME["StatefulSet"])


async def calm(world: World, seconds: float = 1, *, counted: Callable[[int], Sized] | None = None) -> None:
    """Wait until the operator makes no more requests, because no watch events arrive or are to come.

    Args:
        world: The namespace.
        seconds: For how long it makes none.
        counted: The requests since a mark that count; by default all of this namespace.
    """

    async def quiet() -> bool:
        if not await _workloads_know_their_pods(world):
            return False
        mark = world.audit_mark()
        await asyncio.sleep(seconds)
        return not (counted or world.requests)(mark)

    await until(quiet, "the operator is quiet")


async def expect_quiet_restart(world: World, operators: Operators, operator: OperatorProcess) -> OperatorProcess:
    """Stop the operator once it is quiet, and start another one. Expect that it finds nothing to write."""
    await calm(world, QUIET_S)
    before = await world.status()
    assert operator.stop() == 0
    mark = world.audit_mark()
    second = await operators.start()
    await second.until_looked()
    await calm(world, QUIET_S)
    assert world.writes(mark) == {}, f"the status was {before}, and is {await world.status()}"
    return second


async def _workloads_know_their_pods(world: World) -> bool:
    """Whether the controllers of workloads have seen all that happened; on a busy machine they take some seconds."""
    for kind in _WORKLOADS:
        for workload in (await world.api.get(kind.path(world.namespace)))["items"]:
            status, labels = workload.get("status", {}), workload["spec"]["selector"]["matchLabels"]
            selector = ",".join(f"{key}={value}" for key, value in labels.items())
            pods = (await world.api.get(POD.path(world.namespace), labelSelector=selector))["items"]
            seen = [status.get(member, 0) for member in ("observedGeneration", "replicas", "readyReplicas")]
            if seen != [
                workload["metadata"]["generation"],
                len(pods),
                sum(has_condition(pod, "Ready") for pod in pods),
            ]:
                return False
    return True
