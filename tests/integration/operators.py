"""Operator processes that serve a test's namespace."""

from pathlib import Path

from tests.integration.operator_process import OperatorProcess
from tests.integration.world import World


class Operators:
    """Makes operator processes."""

    def __init__(self, world: World, folder: Path) -> None:
        self._world = world
        self._folder = folder
        self._processes: list[OperatorProcess] = []

    async def start(self, *flags: str, kubeconfig: Path | None = None, elect: bool = False) -> OperatorProcess:
        """Start one and wait until it is ready."""
        number = len(self._processes)
        leadership = (
            ["--leader-elect", f"--lease-namespace={self._world.namespace}"] if elect else ["--no-leader-elect"]
        )
        process = OperatorProcess(
            [
                f"--namespace={self._world.namespace}",
                f"--kubeconfig={kubeconfig or self._world.cluster.kubeconfig}",
                *leadership,
                *flags,
            ],
            log=self._folder / f"operator-{number}.log",
        )
        self._processes.append(process)
        await process.until_ready()
        return process

    def kill_all(self) -> None:
        for process in self._processes:
            process.kill()
