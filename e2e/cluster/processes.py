"""Long-running processes that are found by what they are, not by a number written down.

Each process carries its identity in its environment (`PDINFERENCE_PROCESS=<cluster's folder>/<component>`), which the
kernel shows in /proc. Unlike a pid file, it can't be missing because its writer was killed in between, and can't name a
stranger that was given the same number.
"""

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster.commands import Word
from e2e.cluster.errors import ClusterError
from e2e.cluster.spec import ClusterSpec
from e2e.cluster.waiting import tail, wait_until

_MARK = "PDINFERENCE_PROCESS"
_LOOKS = 50
_LOOK_AGAIN_SECONDS = 0.02
_MOST_BYTES = 6 << 20  # what the kernel takes of arguments and environment together at most (execve(2))
_FLAGS = 5  # flags of a process among the numbers after its state in /proc/PID/stat (proc_pid_stat(5))
_KERNEL_THREAD = 0x00200000  # PF_KTHREAD in the kernel's include/linux/sched.h


@dataclass(frozen=True)
class Component:
    """A process of a cluster that is started, watched and stopped by its name."""

    name: str
    cluster: ClusterSpec
    command: Sequence[Word]
    ready: Callable[[], bool]
    netns: str
    timeout: float = 300
    gives_up: bool = False  # ends when what it needs is not ready yet, and counts on being started again

    @property
    def log(self) -> Path:
        """Where it prints."""
        return self.cluster.logs / f"{self.name.replace('/', '.')}.log"

    @property
    def mark(self) -> str:
        """What tells it from every other process."""
        return f"{self.cluster.folder}/{self.name}"

    @property
    def program(self) -> str:
        """The name of its executable."""
        return Path(self.command[0]).name

    def pid(self) -> int | None:
        """Its process id, None when it does not run.

        Children inherit the mark, so the program's name has to match too; a child just forked shares even that, and is
        younger.
        """
        return min((pid for pid in _marked(self.mark) if _program(pid) == self.program), key=_age_key, default=None)

    def ensure(self) -> None:
        """Start it unless it runs, and wait until it serves."""
        self.launch()
        self.await_ready()

    def launch(self) -> None:
        """Start it unless it runs, and don't wait."""
        if self.pid() is None:
            self._start()

    def await_ready(self) -> None:
        """Wait until it serves; a process that ended is reported at once."""
        wait_until(f"{self.name} to be ready", self._alive_and_ready, timeout=self.timeout, log=self.log)

    def stop(self, *, sign: signal.Signals = signal.SIGTERM, timeout: float = 5) -> None:
        """End it, by force when it does not go by itself."""
        pid = self.pid()
        if pid is None:
            return
        if not (_ended(pid, sign, timeout) or _ended(pid, signal.SIGKILL, 60)):
            raise ClusterError(f"{self.name} (process {pid}) does not end, not even by SIGKILL.")

    def _start(self) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        # setsid --fork makes it a child of init: it outlives us, and we leave no zombies. nsenter and not
        # `ip netns exec`: the latter mounts a new /sys and thereby hides the cgroups.
        words = ["setsid", "--fork", "nsenter", f"--net=/run/netns/{self.netns}", "--", *map(str, self.command)]
        with self.log.open("ab") as log:
            environment = {**os.environ, _MARK: self.mark}
            subprocess.run(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, cwd="/", check=True
            )
        wait_until(f"{self.name} to start", self._started, timeout=60, log=self.log)

    def _started(self) -> bool:
        """Whether setsid and nsenter have become the program, or it has ended already."""
        return self.pid() is not None or not _marked(self.mark)

    def _alive_and_ready(self) -> bool:
        if self.ready():
            return True
        if self.pid() is None:
            if not self.gives_up:
                raise ClusterError(f"{self.name} ended before it was ready.{tail(self.log)}")
            self.launch()
        return False


def kill_marked(cluster: ClusterSpec) -> None:
    """Kill everything that this cluster's components are or have started outside of containers."""
    kill_all(f"the processes of {cluster.name}", lambda: marked_processes(cluster))


def kill_all(what: str, find: Callable[[], Iterable[int]]) -> None:
    """Kill until nothing is found any more: a process may fork while the others are being killed."""

    def none_left() -> bool:
        found = list(find())
        for pid in found:
            _send(pid, signal.SIGKILL)
        return not found

    wait_until(f"{what} to die", none_left, timeout=120)


def marked_processes(cluster: ClusterSpec) -> list[int]:
    """Every process that carries this cluster's mark."""
    return _marked(f"{cluster.folder}/", prefix=True)


def _marked(mark: str, *, prefix: bool = False) -> list[int]:
    """Find processes by their mark."""
    entry = f"{_MARK}={mark}".encode()
    return [pid for pid in _pids() if _has_entry(pid, entry, prefix=prefix)]


def _pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def _has_entry(pid: int, entry: bytes, *, prefix: bool) -> bool:
    environment = _shown(pid, "environ")
    if entry not in environment:
        return False
    return any(word.startswith(entry) if prefix else word == entry for word in environment.split(b"\0"))


def _program(pid: int) -> str:
    return Path(os.fsdecode(_shown(pid, "cmdline").split(b"\0")[0])).name


def _shown(pid: int, file: str) -> bytes:
    """A file of a process in /proc; empty when the process has ended, or has none.

    While a process executes another program, the kernel shows an empty environment and command line for an instant. So
    an empty one is believed only after several looks. One that is read in two parts can lack the second, because the
    memory that the first came from is gone by then: it is read at once.
    """
    try:
        for _ in range(_LOOKS):
            with Path(f"/proc/{pid}/{file}").open("rb", buffering=0) as shown:
                content = shown.read(_MOST_BYTES)
            if content or _has_no_memory(pid):
                return content
            time.sleep(_LOOK_AGAIN_SECONDS)
    except OSError:  # it has ended
        pass
    return b""


def _has_no_memory(pid: int) -> bool:
    """Whether it is a kernel thread, or a process that has ended and that its parent has not noticed yet."""
    state, *numbers = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return state in "ZX" or bool(int(numbers[_FLAGS]) & _KERNEL_THREAD)


def _age_key(pid: int) -> int:
    """The start time in clock ticks, the 22nd field of stat; the name before it may hold blanks and parentheses."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except OSError:
        return 1 << 62


def _ended(pid: int, sign: signal.Signals, timeout: float) -> bool:
    """Send a signal and wait for the process to end; only then are its ports free again.

    A killed process loses its memory, and with it the mark by which it is found, before it lets go of its sockets.
    """
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        signal.pidfd_send_signal(process, sign)
        return bool(select.select([process], [], [], timeout)[0])
    except ProcessLookupError:
        return True
    finally:
        os.close(process)


def _send(pid: int, sign: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, sign)
