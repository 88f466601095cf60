"""The launcher of the path HostLocal: real processes, with a small HTTP server as vLLM."""

import contextlib
import http.client
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pdinference.api.engines import Slot
from pdinference.api.names import Role
from pdinference.engine.command import SCRIPTS_MOUNT, Command, variable
from pdinference.engine.host_local import launcher_command
from pdinference.engine.scripts import host_engines
from tests.ports import free_port
from tests.waiting import LONG_S, wait_until

ENGINE = """
import http.server, os, pathlib, signal, sys, tempfile, threading, time
name = os.environ["NAME"]
broken = pathlib.Path(tempfile.gettempdir(), os.environ["LAUNCHED"] + name)
if broken.exists():
    sys.exit(3)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/exit":
            print("Error: lost a device", flush=True)
            os._exit(3)
        if self.path == "/break":
            broken.touch()
            os._exit(3)
        if self.path == "/hang":
            os.kill(os.getpid(), signal.SIGSTOP)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"{os.getpid()} {os.environ.get('CUDA_VISIBLE_DEVICES')}".encode())
    def log_message(self, *_):
        pass
def drained(*_):
    print("drained", flush=True)
    os._exit(0)
signal.signal(signal.SIGTERM, drained)
server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
print("serving", flush=True)
server.serve_forever()
"""


class Launched:
    """The launcher with the engines decode-0 and parameter-0."""

    def __init__(self, ports: dict[str, int], *arguments: str) -> None:
        self._ports = ports
        self._mark = str(uuid.uuid4())
        self.process = subprocess.Popen(
            [sys.executable, "-I", host_engines.__file__, *arguments],
            env={**os.environ, "LAUNCHED": self._mark},
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: list[str] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.lines.extend(line.strip() for line in self.process.stderr)

    def processes(self) -> list[int]:
        """The launcher and all processes that it has started, whatever their parent and session are now."""
        return [int(entry.name) for entry in Path("/proc").glob("[0-9]*") if self._started(entry)]

    def _started(self, process: Path) -> bool:
        try:
            return f"LAUNCHED={self._mark}".encode() in (process / "environ").read_bytes().split(b"\0")
        except OSError:  # it has ended, or belongs to another user
            return False

    def end(self) -> None:
        """Kill what runs. A launcher that has ended must have ended all of it before."""
        if self.process.poll() is None:
            wait_until(self._killed, lambda: f"processes {self.processes()} end")
        left = self.processes()
        self.process.wait(LONG_S)
        for broken in Path(tempfile.gettempdir()).glob(f"{self._mark}*"):
            broken.unlink()
        assert left == [], f"still running: {left}"

    def _killed(self) -> bool:
        for pid in (found := self.processes()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not found

    def says(self, text: str, times: int = 1) -> None:
        """Wait until it has written a text this often."""
        wait_until(lambda: sum(text in line for line in self.lines) >= times, lambda: f"{text!r} in {self.lines}")

    def get(self, target: str, path: str) -> tuple[int, str]:
        """Status and body; 0 if nothing answers."""
        connection = http.client.HTTPConnection("127.0.0.1", self._ports[target], timeout=60)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()
        except (OSError, http.client.HTTPException):
            return 0, ""
        finally:
            connection.close()

    def ready(self, status: int = 200, path: str = "/readiness") -> None:
        """Wait for this answer to a probe."""
        wait_until(lambda: self.get("launcher", path)[0] == status, lambda: f"{path} {status}, {self.lines}")

    def pid(self, engine: str) -> int:
        """Wait for an engine; its process id."""
        wait_until(lambda: self.get(engine, "/health")[0] == 200, engine)
        return int(self.get(engine, "/health")[1].split()[0])


def break_down(launched: Launched, engine: str) -> None:
    """Let an engine exit, and not come up any more. It starts twice at once, and pauses."""
    launched.get(engine, "/break")
    launched.says(f"Error: {engine} has ended", times=3)


Launch = Callable[..., Launched]


@pytest.fixture
def launch() -> Iterator[Launch]:
    started: list[Launched] = []

    def start(*, startup: float = LONG_S, period: float = 0.1, check: float = 20, **programs: str) -> Launched:
        ports = {name: free_port() for name in ("decode-0", "parameter-0", "launcher")}
        words = []
        for index, name in enumerate(("decode-0", "parameter-0")):
            program = programs.get(name.partition("-")[0], ENGINE)
            command = [sys.executable, "-c", program, str(ports[name])]
            environment = [f"NAME={name}", f"CUDA_VISIBLE_DEVICES={index}"]
            words += [name, ports[name], len(environment), *environment, len(command), *command]
        # Three checks that take longer than `check` count as a hang.
        started.append(Launched(ports, *map(str, [ports["launcher"], startup, period, check, 3, *words])))
        return started[-1]

    yield start
    with contextlib.ExitStack() as ending:  # each one, even if another one has left processes
        for each in started:
            ending.callback(each.end)


def test_it_is_started_when_all_engines_have_been_up_each_with_its_own_devices(launch: Launch) -> None:
    launched = launch()
    launched.ready(path="/startup")
    assert launched.get("launcher", "/liveness")[0] == 200
    assert launched.get("launcher", "/other")[0] == 503
    assert launched.get("decode-0", "/health")[1].endswith(" 0")
    assert launched.get("parameter-0", "/health")[1].endswith(" 1")
    launched.says("decode-0: serving")
    launched.says("parameter-0: serving")


def test_an_engine_that_exits_starts_anew_and_the_others_go_on(launch: Launch) -> None:
    launched = launch()
    launched.ready(path="/startup")
    kept, lost = launched.pid("decode-0"), launched.pid("parameter-0")
    launched.get("parameter-0", "/exit")
    launched.says("parameter-0: serving", times=2)
    assert launched.pid("parameter-0") != lost
    assert launched.pid("decode-0") == kept
    assert launched.get("launcher", "/startup")[0] == 200
    launched.says("Error: parameter-0 has ended with exit code 3.")


def test_an_engine_that_was_up_does_not_pause_before_it_starts_anew(launch: Launch) -> None:
    launched = launch()
    launched.ready(path="/startup")
    begin = time.monotonic()
    for times in range(2, 6):
        launched.pid("parameter-0")
        launched.get("parameter-0", "/exit")
        launched.says("parameter-0: serving", times=times)
    assert time.monotonic() - begin < sum(map(host_engines.pause_seconds, range(1, 5))), (
        "the pauses before four starts that fail"
    )
    launched.pid("parameter-0")


def test_an_engine_that_dies_soon_after_it_came_up_was_up(launch: Launch) -> None:
    """P was killed as soon as it answered, seven times, between two checks: the pauses grew (found on an H200)."""
    launched = launch(period=2 * LONG_S)
    launched.ready(path="/startup")  # else the second check comes too late for this


def test_it_is_ready_while_a_d_engine_is(launch: Launch) -> None:
    launched = launch()
    launched.ready(path="/startup")
    launched.ready()
    break_down(launched, "decode-0")
    launched.ready(503)
    assert launched.pid("parameter-0")


def test_an_engine_that_hangs_is_killed_and_starts_anew(launch: Launch) -> None:
    launched = launch(check=2)
    launched.ready(path="/startup")
    kept, hung = launched.pid("parameter-0"), launched.pid("decode-0")
    threading.Thread(target=launched.get, args=("decode-0", "/hang"), daemon=True).start()
    launched.says("decode-0 does not respond")
    assert launched.pid("decode-0") != hung
    assert launched.pid("parameter-0") == kept


def test_sigterm_lets_all_engines_drain_and_ends_with_them(launch: Launch) -> None:
    launched = launch()
    launched.ready(path="/startup")
    launched.process.send_signal(signal.SIGTERM)
    assert launched.process.wait(LONG_S) == 0
    launched.says("decode-0: drained")
    launched.says("parameter-0: drained")


def test_sigterm_ends_it_while_an_engine_waits_for_its_next_start(launch: Launch) -> None:
    launched = launch()
    launched.ready(path="/startup")
    break_down(launched, "parameter-0")
    launched.process.send_signal(signal.SIGTERM)
    assert launched.process.wait(LONG_S) == 3
    launched.says("decode-0: drained")


def test_an_engine_that_fails_before_all_have_been_up_ends_the_container_with_its_words(launch: Launch) -> None:
    launched = launch(parameter="import sys; print('ValueError: no such model'); sys.exit(4)")
    assert launched.process.wait(LONG_S) == 4
    launched.says("parameter-0: ValueError: no such model")
    launched.says("Error: parameter-0 has ended with exit code 4.")
    wait_until(lambda: launched.get("decode-0", "/health")[0] == 0, "decode-0 is killed")


def test_an_engine_that_does_not_come_up_in_time_ends_the_container(launch: Launch) -> None:
    launched = launch(startup=0.5, decode="import time; time.sleep(600)")
    assert launched.process.wait(LONG_S) == 128 + signal.SIGKILL
    launched.says("decode-0 does not respond")


def test_the_processes_of_an_engine_end_with_it(launch: Launch) -> None:
    forking = ENGINE.replace('print("serving"', 'child = os.fork() or time.sleep(600); print(f"worker {child}"', 1)
    launched = launch(decode=forking)
    launched.ready(path="/startup")
    launched.says("decode-0: worker ")
    worker = int(next(line for line in launched.lines if "worker" in line).split()[-1])
    launched.get("decode-0", "/exit")
    wait_until(lambda: not _runs(worker), "the worker has ended")


def _runs(pid: int) -> bool:
    """Whether a process runs; one that has ended may wait for its parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_long_and_unfinished_lines_are_copied(launch: Launch) -> None:
    printing = 'import sys; sys.stdout.write("x" * 200_000 + "end\\nlast"); sys.stdout.flush(); sys.exit(4)'
    launched = launch(decode=printing)
    assert launched.process.wait(LONG_S) == 4
    launched.says("decode-0: last")
    assert sum(line.count("x") for line in launched.lines if line.startswith("decode-0: x")) == 200_000


def test_pauses_grow_to_five_minutes_and_stay_there() -> None:
    """An engine that fails at once has started 1,000 times after three and a half days."""
    pauses = [host_engines.pause_seconds(starts) for starts in (0, 1, 2, 3, 4, 5, 6, 7, 8, 100_000)]
    assert pauses == [0, 0, 10, 20, 40, 80, 160, 300, 300, 300]


def test_the_arguments_of_the_command_are_those_that_it_reads() -> None:
    d, p = Slot(Role.DECODE, 0, "decode-0"), Slot(Role.PARAMETER, 1, "parameter-0")
    host = {"name": "HOST", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    engines = [
        (d, Command(("vllm", "serve"), ("--port=8000",), (host, variable("A", "=1"), variable("SAME", "2")))),
        (p, Command(("vllm", "serve"), ("--port=8001", "{}"), (host, variable("A", "="), variable("SAME", "2")))),
    ]
    command = launcher_command(engines, 600)
    assert command.environment == (host, variable("SAME", "2"))
    assert command.program[3:] == ("8100", "600", "10", "5", "10")
    assert list(host_engines.definitions(list(command.arguments))) == [
        host_engines.Definition("decode-0", 8000, {"A": "=1"}, ["vllm", "serve", "--port=8000"]),
        host_engines.Definition("parameter-0", 8001, {"A": "="}, ["vllm", "serve", "--port=8001", "{}"]),
    ]
    assert command.program[2] == f"{SCRIPTS_MOUNT}/{Path(host_engines.__file__).name}"
    assert command.scripts == ("host_engines",)
