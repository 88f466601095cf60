"""Engines of a rendered pod die again and again under load: `python3 -m benchmarks.on_gpu.deaths_in_pod FILE VICTIM`.

FILE is what `pdinference render` prints for a resource `m` with `transfer.hostLocal`; benchmarks.on_gpu.rendered_pod
starts it. The model is one of random weights, and vLLM is eager. A victim is a name of an engine, such as parameter-0;
`parameter-0+5` is killed again 5 s later, and `parameter-0:TERM` gets SIGTERM in place of SIGKILL. With `--one-gpu`
all engines are on the first GPU, and each has a share of its memory.

Prints for each death how long the engine took to answer and to transfer again, the memory of the GPUs, and what became
of the streams, which go through the router.
"""

import argparse
import http.client
import json
import random
import signal
import time
from pathlib import Path
from typing import Final

from benchmarks.on_gpu import dead_peer, one_pod, rendered_pod, servers
from benchmarks.on_gpu.dead_peer import Load
from benchmarks.on_gpu.rendered_pod import is_parameter, is_up, within
from pdinference.engine.scripts.host_engines import Definition

_ADDED: Final = ("--load-format=dummy", "--enforce-eager", "--no-enable-prefix-caching")
_SHARE: Final = ("--gpu-memory-utilization=0.14", f"--kv-cache-memory-bytes={8 * 2**30}")
_SHARE_SHAPE: Final = {"num_hidden_layers": 14}
_CLIENTS: Final = 3
_TOKENS: Final = 4000
_ANSWER: Final = 100
_START_SECONDS: Final = 280.0
_BACK_SECONDS: Final = 180.0
_FREE_SECONDS: Final = 4.0
"""After a death: by then its memory has to be free."""


def ask() -> str:
    """What became of a stream through the router."""
    prompt = [random.randrange(3, 150000) for _ in range(_TOKENS)]
    body = {"model": servers.MODEL, "prompt": prompt, "max_tokens": _ANSWER, "temperature": 0, "ignore_eos": True}
    body |= {"stream": True, "stream_options": {"include_usage": True}}
    begun, tokens = False, 0
    connection = http.client.HTTPConnection(servers.HOST, rendered_pod.ROUTER_PORT, timeout=120)
    try:
        connection.request("POST", "/v1/completions", json.dumps(body), {"content-type": "application/json"})
        answer = connection.getresponse()
        for line in answer:
            begun = begun or b'"index":0' in line
            if b'"usage":{' in line:
                tokens = json.loads(line.removeprefix(b"data:"))["usage"]["completion_tokens"]
        if tokens == _ANSWER:
            return "whole"
        why = f"status {answer.status}, {tokens} tokens"
    except dead_peer.FAILURES as error:
        why = type(error).__name__
    finally:
        connection.close()
    time.sleep(0.2)
    return f"{'broken after it began' if begun else 'lost'}: {why}"


def moved(engine: Definition) -> float:
    """Bytes that an engine's connector has transferred."""
    try:
        return servers.metric(engine.port, "vllm:nixl_bytes_transferred_sum")
    except OSError:
        return 0.0


def die(victim: str, engines: list[Definition], load: Load) -> bool:
    """Kill an engine, and wait until it answers and KV cache moves with it again."""
    name, _, number = victim.partition(":")
    name, _, again_after = name.partition("+")
    engine = next(one for one in engines if one.name == name)
    before, began = load.outcomes.copy(), time.monotonic()
    used = dead_peer.gibibytes("memory.used")
    port = f"--port={engine.port}"
    rendered_pod.kill(port, signal.Signals[f"SIG{number or 'KILL'}"])
    if number:
        within(60, lambda: not is_up(engine))
    time.sleep(_FREE_SECONDS)
    after = dead_peer.gibibytes("memory.used")
    if again_after:
        time.sleep(max(0.0, float(again_after) - _FREE_SECONDS))
        rendered_pod.kill(port)
        began = time.monotonic()
    if not within(_BACK_SECONDS, lambda: is_up(engine)):
        print(f"{victim} did not come back; GiB used before {used}, after {after}", flush=True)
        return False
    up = time.monotonic() - began
    readers = [each for each in engines if not is_parameter(each)] if is_parameter(engine) else [engine]
    bytes_of = {each.name: moved(each) for each in readers}
    transfers = within(60, lambda: all(moved(each) > bytes_of[each.name] for each in readers))
    print(
        f"{victim} answers {up:.0f} s after its death; transfers again: {transfers} ({time.monotonic() - began:.0f} s)"
        f"; GiB used before {used}, {_FREE_SECONDS:.0f} s after {after}; streams {dict(load.outcomes - before)}",
        flush=True,
    )
    return transfers


def run(choices: argparse.Namespace) -> None:
    """Start the pod, let the victims die one after the other, and end it."""
    given = rendered_pod.rendered(choices.file)
    servers.write_model(one_pod.FOLDER / "model", **dead_peer.SHAPE | (_SHARE_SHAPE if choices.one_gpu else {}))
    added, gpu = ((*_ADDED, *_SHARE), "0") if choices.one_gpu else (_ADDED, None)
    engines = [rendered_pod.with_random_weights(engine, added, gpu) for engine in given.engines]
    began = time.monotonic()
    pod = rendered_pod.Pod(given, engines)
    router = rendered_pod.start_router(given, engines)
    try:
        within(_START_SECONDS, lambda: pod.exit_code is not None or pod.is_started)
        if pod.exit_code is not None or not within(60, rendered_pod.router_is_ready):
            print(rendered_pod.LOG.read_text()[-6000:], rendered_pod.ROUTER_LOG.read_text()[-3000:])
            return
        print(f"All engines answer after {time.monotonic() - began:.0f} s", flush=True)
        load = Load(ask, _CLIENTS)
        within(60, lambda: all(moved(each) > 0 for each in engines if not is_parameter(each)))
        for victim in choices.victims:
            if time.monotonic() - began > choices.seconds or not die(victim, engines, load):
                break
        print("all streams:", load.end())
        log = rendered_pod.LOG.read_text(errors="replace").splitlines()
        said = ("Released", "Removed engine", "is not released")
        print("\n".join([line[-160:] for line in log if any(word in line for word in said)][-8:]))
        pod.terminate()
        stopped = within(60, lambda: pod.exit_code is not None)
        print(f"SIGTERM: ended {stopped}, exit code {pod.exit_code}, GiB used {dead_peer.gibibytes('memory.used')}")
    finally:
        router.terminate()
        pod.kill()


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("victims", nargs="+")
    parser.add_argument("--one-gpu", action="store_true")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no engine dies later than this")
    run(parser.parse_args())


if __name__ == "__main__":
    main()
