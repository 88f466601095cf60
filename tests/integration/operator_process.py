"""The operator as a process, as in production."""

import signal
import subprocess
import sys
from pathlib import Path

import aiohttp

from tests.ports import free_port
from tests.waiting import until

RECONCILED = "pdinference_reconcile_total"


class OperatorProcess:
    """A running `pdinference run`."""

    def __init__(self, flags: list[str], *, log: Path) -> None:
        self.port = free_port()
        command = [str(Path(sys.executable).with_name("pdinference")), "run", "--log-format=plain", *flags]
        self.log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [*command, f"--health-port={self.port}"], stdout=output, stderr=subprocess.STDOUT
            )

    async def until_ready(self) -> None:
        async def ready() -> bool:
            assert self.running, f"it ended with {self._process.returncode}: {self.log.read_text()}"
            return await self._status("/readyz") == 200

        await until(ready, "the operator is ready")

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    async def healthy(self) -> bool:
        return await self._status("/healthz") == 200

    async def metric(self, name: str) -> float:
        """Sum of a metric over its labels."""
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{self.port}/metrics") as response:
            lines = (await response.text()).splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith((f"{name} ", f"{name}{{")))

    async def until_looked(self, since: float = 0) -> None:
        """Wait until it has reconciled something, or something more."""

        async def looked() -> bool:
            return await self.metric(RECONCILED) > since

        await until(looked, "the operator has looked")

    def most_memory(self) -> int:
        """Bytes of memory that it had at most so far, without those of its child processes."""
        status = Path(f"/proc/{self._process.pid}/status").read_text(encoding="ascii")
        (line,) = [line for line in status.splitlines() if line.startswith("VmHWM:")]
        return int(line.split()[1]) * 1024

    def kill(self) -> None:
        """SIGKILL, as the kernel does when memory runs out."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM, as the kubelet does; the exit status comes back."""
        return self._end(signal.SIGTERM)

    def suspend(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def wait(self, timeout: float) -> int:
        return self._process.wait(timeout)

    def _end(self, number: signal.Signals) -> int:
        if self.running:
            self._process.send_signal(number)
        return self._process.wait(timeout=120)

    async def _status(self, path: str) -> int:
        try:
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"http://127.0.0.1:{self.port}{path}", timeout=aiohttp.ClientTimeout(5)) as response,
            ):
                return response.status
        except (aiohttp.ClientError, TimeoutError):
            return 0
