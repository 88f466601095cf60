"""The engines of a HostLocal pod and its router, started from what `pdinference render` prints (root, vLLM)."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import yaml

from benchmarks.on_gpu import one_pod, servers
from pdinference.engine.scripts import host_engines
from pdinference.engine.scripts.host_engines import Definition

LOG: Final = one_pod.FOLDER / "pod.log"
ROUTER_LOG: Final = one_pod.FOLDER / "router.log"
ROUTER_PORT: Final = 8080
_STATE_PORT: Final = 29000
_STARTED: Final = f"http://{servers.HOST}:8100/startup"
"""The launcher's: before it has seen all engines up, the end of one ends all."""
_SCRIPTS: Final = Path("/etc/pdinference/scripts")
_SOURCES: Final = Path("operator/pdinference/engine/scripts")
_CACHE: Final = Path("/cache")
_MACHINE: Final = {"VLLM_USE_FLASHINFER_SAMPLER": "0", "HF_HUB_OFFLINE": "1"}
_OF_A_CLUSTER: Final = ("--namespace", "--name", "--revision")


@dataclass(frozen=True)
class Rendered:
    """What a pod runs.

    Attributes:
        command: Of the launcher, without the engines; empty if each engine has its own container.
        environment: Variables of the launcher's container.
        engines: The engines, D's first.
        router: Arguments of the router.
    """

    command: list[str]
    environment: dict[str, str]
    engines: list[Definition]
    router: list[str]


def rendered(path: Path) -> Rendered:
    """What the pod of a resource `m` and its router run, according to a file of rendered objects."""
    pods = {
        one["metadata"]["name"]: one["spec"]["template"]["spec"]["containers"]
        for one in yaml.safe_load_all(path.read_text(encoding="utf-8"))
        if one and one["kind"] == "Deployment"
    }
    (router,) = pods.pop("m-router")
    ((first, *others),) = pods.values()
    if not others:
        engines = list(host_engines.definitions(first["args"]))
        return Rendered(first["command"], _environment(first), engines, router["args"])
    return Rendered([], {}, [_engine(one) for one in (first, *others)], router["args"])


def _environment(container: dict[str, Any]) -> dict[str, str]:
    """The variables of a container; one without a value has the address of the pod."""
    return {one["name"]: one.get("value", servers.HOST) for one in container["env"]}


def _engine(container: dict[str, Any]) -> Definition:
    command = [*container["command"], *container["args"]]
    (port,) = (int(word.removeprefix("--port=")) for word in command if word.startswith("--port="))
    return Definition(container["name"], port, _environment(container), command)


def with_random_weights(engine: Definition, added: Sequence[str], gpu: str | None) -> Definition:
    """An engine of this machine's model.

    Args:
        engine: As rendered.
        added: Further options.
        gpu: The only GPU that it sees; None for that of the pod.
    """
    at = engine.command.index("serve") + 1
    named = [word for word in engine.command[at + 1 :] if "revision" not in word and "--served-model-name" not in word]
    model = [str(one_pod.FOLDER / "model"), f"--served-model-name={servers.MODEL}"]
    device = {"CUDA_VISIBLE_DEVICES": gpu} if gpu else {}
    return replace(
        engine, command=[*engine.command[:at], *model, *named, *added], environment=engine.environment | device
    )


class Pod:
    """The engines, in one container with the launcher, or in containers that this module's process starts anew."""

    def __init__(self, given: Rendered, engines: list[Definition]) -> None:
        shutil.copytree(_SOURCES, _SCRIPTS, dirs_exist_ok=True)
        _CACHE.mkdir(exist_ok=True)
        LOG.unlink(missing_ok=True)
        self._engines, self._launched = engines, bool(given.command)
        if given.command:
            line = [*given.command, *(word for engine in engines for word in _words(engine))]
            environment = os.environ | given.environment | _MACHINE
        else:
            os.chown(_CACHE, one_pod.USER, one_pod.USER)
            lines = {engine.name: one_pod.contained(_line(engine)) for engine in engines}
            line = [*one_pod.POD, sys.executable, "-m", __name__, json.dumps(lines)]
            environment = dict(os.environ)
        with LOG.open("wb") as log:
            self._process = subprocess.Popen(line, env=environment, stdout=log, stderr=log, start_new_session=True)

    @property
    def is_started(self) -> bool:
        """Whether all engines have come up."""
        return servers.answers(_STARTED) if self._launched else all(map(is_up, self._engines))

    @property
    def exit_code(self) -> int | None:
        """Of the pod's main process; None while it runs."""
        return self._process.poll()

    def terminate(self) -> None:
        """Ask it to end, as the kubelet does."""
        if self._launched:
            self._process.terminate()
        else:
            first = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text(encoding="ascii")
            os.kill(int(first), signal.SIGTERM)

    def kill(self) -> None:
        """End all that is left of it."""
        self._process.kill()
        for engine in self._engines:
            kill(f"--port={engine.port}")


def _words(engine: Definition) -> Iterator[str]:
    """The launcher's arguments for an engine."""
    environment = [f"{name}={value}" for name, value in engine.environment.items()]
    yield from (engine.name, str(engine.port), str(len(environment)), *environment)
    yield from (str(len(engine.command)), *engine.command)


def _line(engine: Definition) -> list[str]:
    """The command line of an engine with its variables."""
    return ["env", *(f"{name}={value}" for name, value in (engine.environment | _MACHINE).items()), *engine.command]


def is_up(engine: Definition) -> bool:
    """Whether an engine answers."""
    return servers.answers(f"http://{servers.HOST}:{engine.port}/health")


def is_parameter(engine: Definition) -> bool:
    """Whether it is P."""
    return engine.name.startswith("parameter")


def kill(word: str, number: signal.Signals = signal.SIGKILL) -> None:
    """Send a signal to the processes of whose command lines a word is one, and for SIGKILL to their process groups."""
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line, process = entry.read_bytes().split(b"\0"), int(entry.parent.name)
            if word.encode() in line and b"host_engines" not in b" ".join(line[:4]) and process != os.getpid():
                if number is signal.SIGKILL:
                    os.killpg(os.getpgid(process), number)
                else:
                    os.kill(process, number)
        except (OSError, ValueError):
            continue


def start_router(given: Rendered, engines: list[Definition]) -> subprocess.Popen[bytes]:
    """The router with the arguments of its pod, and the engines in place of watched pods."""
    kept = [word for word in given.router if word.partition("=")[0] not in _OF_A_CLUSTER]
    kept += [f"--{'parameter' if is_parameter(one) else 'decode'}={servers.HOST}:{one.port}" for one in engines]
    kept += [f"--host={servers.HOST}", f"--port={ROUTER_PORT}", f"--state-port={_STATE_PORT}"]
    line = [sys.executable, "-c", "from pdinference.cli import main; main()", "router", "run", *kept]
    with ROUTER_LOG.open("wb") as log:
        return subprocess.Popen(line, stdout=log, stderr=log)


def router_is_ready() -> bool:
    """Whether its canaries have come through all pairs."""
    return servers.answers(f"http://{servers.HOST}:{_STATE_PORT}/readyz")


def within(seconds: float, holds: Any) -> bool:
    """Wait for a condition, and say whether it came."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if holds():
            return True
        time.sleep(0.25)
    return False


def main_process(lines: dict[str, list[str]]) -> None:
    """The first process of a pod: starts each container anew when it ends, until SIGTERM, which all of them get."""
    ending, running = False, dict[int, str]()

    def end(*_: object) -> None:
        nonlocal ending
        ending = True
        for process in running:
            os.kill(process, signal.SIGTERM)

    def start(name: str) -> None:
        running[subprocess.Popen(lines[name], start_new_session=True).pid] = name

    signal.signal(signal.SIGTERM, end)
    for name in lines:
        start(name)
    while running:
        process, _ = os.wait()
        if name := running.pop(process, ""):
            with suppress(ProcessLookupError):
                os.killpg(process, signal.SIGKILL)  # what the container leaves behind
            if not ending:
                start(name)


if __name__ == "__main__":
    main_process(json.loads(sys.argv[1]))
