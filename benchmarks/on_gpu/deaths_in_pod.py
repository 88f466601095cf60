"""Engines of one container die again and again under load: `python3 -m benchmarks.on_gpu.deaths_in_pod FILE VICTIM...`.

FILE is what `pdinference render` prints for a resource `m` with `transfer.hostLocal` and GPUs of a device plug-in, so
the launcher, its arguments and variables are those of the pod. The model is one of random weights, and vLLM is eager.
A victim is a name of an engine, such as parameter-0; `parameter-0+5` is killed again 5 s later. Prints for each death
how long the engine took to answer and to transfer again, the memory of the GPUs, and what became of the requests.
They go as the router sends them: to P first, and to another D if one fails.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, Final

import yaml

from benchmarks.on_gpu import dead_peer, one_pod, servers
from benchmarks.on_gpu.dead_peer import Load
from pdinference.engine.scripts import host_engines
from pdinference.engine.scripts.host_engines import Definition

_SCRIPTS: Final = Path("/etc/pdinference/scripts")
_SOURCES: Final = Path("operator/pdinference/engine/scripts")
_CACHE: Final = Path("/cache")
_ADDED: Final = ("--load-format=dummy", "--enforce-eager", "--no-enable-prefix-caching")
_CLIENTS: Final = 4
_STARTED: Final = f"http://{servers.HOST}:8100/startup"
"""The launcher's: before it has seen all engines up, the end of one ends all."""
_ANSWER: Final = 16
_SAID: Final = ("Released", "Removed engine", "is not released")
_START_SECONDS: Final = 240.0
_BACK_SECONDS: Final = 150.0


def container(path: Path) -> dict[str, Any]:
    """The container of the engines in a file of rendered objects."""
    objects = list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
    (pod,) = (one for one in objects if one["kind"] == "Deployment" and one["metadata"]["name"].startswith("m-decode"))
    (found,) = pod["spec"]["template"]["spec"]["containers"]
    return dict(found)


def words(engine: Definition) -> Iterator[str]:
    """The launcher's arguments for an engine, with the model of random weights."""
    at = engine.command.index("serve") + 1
    options = [word for word in engine.command[at + 1 :] if "revision" not in word]
    named = [word for word in options if not word.startswith("--served-model-name")]
    model = [str(one_pod.FOLDER / "model"), f"--served-model-name={servers.MODEL}"]
    command = [*engine.command[:at], *model, *named, *_ADDED]
    environment = [f"{name}={value}" for name, value in engine.environment.items()]
    yield from (engine.name, str(engine.port), str(len(environment)), *environment, str(len(command)), *command)


def start(given: dict[str, Any], engines: list[Definition]) -> subprocess.Popen[bytes]:
    """The launcher, as the kubelet starts it."""
    shutil.copytree(_SOURCES, _SCRIPTS, dirs_exist_ok=True)
    _CACHE.mkdir(exist_ok=True)
    environment = {one["name"]: one.get("value", servers.HOST) for one in given["env"]}  # status.podIP has no value
    environment |= {"VLLM_USE_FLASHINFER_SAMPLER": "0", "HF_HUB_OFFLINE": "1"}
    line = [*given["command"], *(word for engine in engines for word in words(engine))]
    with (one_pod.FOLDER / "launcher.log").open("wb") as log:
        return subprocess.Popen(line, env=os.environ | environment, stdout=log, stderr=log, start_new_session=True)


def kill(engine: Definition) -> None:
    """SIGKILL to all processes of an engine, which share its session."""
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = entry.read_bytes().split(b"\0")
            if f"--port={engine.port}".encode() in line and b"host_engines" not in b" ".join(line[:4]):
                os.killpg(os.getpgid(int(entry.parent.name)), signal.SIGKILL)
        except (OSError, ValueError):
            continue


def is_parameter(engine: Definition) -> bool:
    """Whether it is P."""
    return engine.name.startswith("parameter")


def is_up(engine: Definition) -> bool:
    """Whether an engine answers."""
    return servers.answers(f"http://{servers.HOST}:{engine.port}/health")


class Client:
    """Asks as the router does."""

    def __init__(self, engines: list[Definition]) -> None:
        self._parameter = [each for each in engines if is_parameter(each)]
        self._decode = [each for each in engines if not is_parameter(each)]
        self._turn = count()

    def ask(self) -> str:
        """What became of a request."""
        prompt = [random.randrange(3, 150000) for _ in range(dead_peer.TOKENS)]
        body = {"model": servers.MODEL, "prompt": prompt, "temperature": 0, "ignore_eos": True}
        turn, name = next(self._turn), f"{random.randrange(10**12)}"
        asked = body | {"max_tokens": 1, "kv_transfer_params": one_pod.REMOTE_DECODE}
        answer = _answer(self._parameter[turn % len(self._parameter)].port, asked, name)
        given = answer.get("kv_transfer_params") if answer else None
        for attempt in range(len(self._decode)):
            decode = self._decode[(turn + attempt) % len(self._decode)]
            asked = body | {"max_tokens": _ANSWER} | ({"kv_transfer_params": given} if given else {})
            answer = _answer(decode.port, asked, name)
            if answer and answer.get("usage", {}).get("completion_tokens") == _ANSWER:
                return f"{'with P' if given else 'D alone'}{', second D' if attempt else ''}"
            given = None
        time.sleep(0.2)
        return "lost"


def _answer(port: int, body: dict[str, Any], name: str) -> dict[str, Any] | None:
    try:
        return dead_peer.post(port, body, name)
    except dead_peer.FAILURES:
        return None


def moved(engine: Definition) -> float:
    """Bytes that an engine's connector has transferred."""
    try:
        return servers.metric(engine.port, "vllm:nixl_bytes_transferred_sum")
    except OSError:
        return 0.0


def die(engine: Definition, again_after: float, engines: list[Definition], load: Load) -> bool:
    """Kill an engine, and wait until it answers and KV cache moves with it again."""
    before, began = load.outcomes.copy(), time.monotonic()
    used = dead_peer.gibibytes("memory.used")
    kill(engine)
    time.sleep(4)
    after = dead_peer.gibibytes("memory.used")
    if again_after:
        time.sleep(max(0.0, again_after - 4))
        kill(engine)
        began = time.monotonic()
    if not _within(_BACK_SECONDS, lambda: is_up(engine)):
        print(f"{engine.name} did not come back; GiB used before {used}, 4 s after {after}", flush=True)
        return False
    up = time.monotonic() - began
    readers = [each for each in engines if not is_parameter(each)] if is_parameter(engine) else [engine]
    bytes_of = {each.name: moved(each) for each in readers}
    transfers = _within(30, lambda: all(moved(each) > bytes_of[each.name] for each in readers))
    outcomes = load.outcomes - before
    print(
        f"{engine.name} answers {up:.0f} s after its death; transfers again: {transfers} "
        f"({time.monotonic() - began:.0f} s); GiB used before {used}, 4 s after {after}; requests {dict(outcomes)}",
        flush=True,
    )
    return transfers


def _within(seconds: float, holds: Any) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if holds():
            return True
        time.sleep(0.25)
    return False


def main() -> None:
    """Start the container, let the victims die one after the other, and end it."""
    given = container(Path(sys.argv[1]))
    servers.write_model(one_pod.FOLDER / "model", **dead_peer.SHAPE)
    engines = list(host_engines.definitions(given["args"]))
    by_name = {engine.name: engine for engine in engines}
    began = time.monotonic()
    launcher = start(given, engines)
    try:
        _within(_START_SECONDS, lambda: launcher.poll() is not None or servers.answers(_STARTED))
        if not servers.answers(_STARTED):
            print((one_pod.FOLDER / "launcher.log").read_text()[-3000:])
            return
        print(f"All engines answer after {time.monotonic() - began:.0f} s", flush=True)
        load = Load(Client(engines).ask, _CLIENTS)
        _within(60, lambda: all(moved(each) > 0 for each in engines if not is_parameter(each)))
        for victim in sys.argv[2:]:
            name, _, again_after = victim.partition("+")
            if not die(by_name[name], float(again_after or 0), engines, load):
                break
        print("all requests:", load.end())
        log = (one_pod.FOLDER / "launcher.log").read_text(errors="replace").splitlines()
        print(
            "\n".join(
                [
                    line[-160:]
                    for line in log
                    if "Released" in line or "Removed engine" in line or "is not released" in line
                ][-8:]
            )
        )
        launcher.send_signal(signal.SIGTERM)
        stopped = _within(60, lambda: launcher.poll() is not None)
        print(f"SIGTERM: ended {stopped}, exit code {launcher.poll()}, GiB used {dead_peer.gibibytes('memory.used')}")
    finally:
        for engine in engines:
            kill(engine)
        launcher.kill()


if __name__ == "__main__":
    main()
