"""What a NIXL agent keeps of a dead peer's GPU memory: `python3 -m benchmarks.on_gpu.dead_agents` (two GPUs, NIXL).

Without vLLM, 5 s a try. Two processes register memory as vLLM registers its KV cache (28 layers of 2 GiB),
one moves prompts of 8,000 tokens, and the other is killed. The numbers are GiB in use on the GPU of the dead process.
"""

import json
import multiprocessing
import os
import sys
import time
from multiprocessing.connection import Connection
from typing import Any, Final, NamedTuple

import pynvml  # type: ignore[import-not-found] # nvidia-ml-py, beside vLLM

from benchmarks.peers import Peer
from pdinference.engine.scripts import pdinference_cuda_ipc

GIB: Final = 2**30
BLOCK: Final = 128 * 4 * 128 * 2 * 2
"""Bytes of a block in a layer of Qwen2.5-7B: tokens, KV heads, head size, K and V, bytes of a value."""
PROMPT_BLOCKS: Final = 63
_LAYERS: Final = 28
_LIVE, _DEAD = 1, 0  # GPUs
_LIMIT_S: Final = 90.0
_AS_IN_VLLM: Final = {"UCX_RCACHE_MAX_UNRELEASED": "1024", "UCX_TCP_TX_SEG_SIZE": "512k", "UCX_TCP_RX_SEG_SIZE": "512k"}


class Try(NamedTuple):
    """One way.

    Attributes:
        variables: The environment of both processes.
        regions: Number of allocations.
        size: GiB of each.
        operation: READ, or WRITE: as P that pushes.
        steps: What the living process does after a death: `remove` (the agent), `release` (the mappings).
        deaths: How many peers die, one after the other.
        sizes: GiB of an allocation of each peer, if not as of the living process.
        prompts: Transfers, one at a time and then four at once.
    """

    variables: dict[str, str] = {}  # noqa: RUF012 - never changed
    regions: int = _LAYERS
    size: float = 2.0
    operation: str = "READ"
    steps: tuple[str, ...] = ("remove",)
    deaths: int = 2
    sizes: tuple[float, ...] = ()
    prompts: int = 12


_BOTH: Final = ("remove", "release")
TRIES: Final = {
    "default": Try(steps=_BOTH, deaths=3),
    "default, nothing done, second peer small": Try(steps=(), sizes=(2.0, 0.5)),
    "CACHE=n": Try({"UCX_CUDA_IPC_CACHE": "n"}),
    "push": Try(operation="WRITE", steps=_BOTH),
    "push, CACHE=n": Try({"UCX_CUDA_IPC_CACHE": "n"}, operation="WRITE", deaths=1),
    "one region": Try(regions=1, size=56, steps=_BOTH),
    "one region, CACHE=n": Try({"UCX_CUDA_IPC_CACHE": "n"}, regions=1, size=56),
    "CACHE_MAX_REGIONS=1": Try({"UCX_CUDA_IPC_CACHE_MAX_REGIONS": "1"}),
    "CACHE_MAX_SIZE=8g": Try({"UCX_CUDA_IPC_CACHE_MAX_SIZE": "8g"}),
    "RCACHE_ENABLE=n": Try({"UCX_RCACHE_ENABLE": "n", "UCX_CUDA_COPY_REG_WHOLE_ALLOC": "n"}, deaths=1),
    "without cuda_ipc": Try({"UCX_TLS": "^cuda_ipc"}, deaths=1, prompts=3),
    "0.5 GiB regions, CACHE=n": Try({"UCX_CUDA_IPC_CACHE": "n"}, size=0.5, deaths=1),
    "0.5 GiB regions": Try(size=0.5, deaths=1),
}


class _Agent:
    """The agent of a process, and its memory."""

    def __init__(self, gpu: int, regions: int, size: float) -> None:
        import torch  # noqa: PLC0415 - after CUDA_VISIBLE_DEVICES is set
        from nixl._api import nixl_agent, nixl_agent_config  # noqa: PLC0415

        self._memory = [torch.empty(int(size * GIB), dtype=torch.uint8, device="cuda") for _ in range(regions)]
        config = nixl_agent_config(num_threads=4, capture_telemetry=True)  # as vLLM's
        self._agent = agent = nixl_agent(f"agent-{gpu}-{os.getpid()}", config)
        agent.register_memory(
            agent.get_reg_descs([(one.data_ptr(), one.numel(), 0, "") for one in self._memory], "VRAM")
        )
        each = _LAYERS // regions or 1
        stride = self._memory[0].numel() // each // BLOCK * BLOCK
        self._blocks = min(stride // BLOCK, 8 * PROMPT_BLOCKS)  # in a layer
        self._layers = regions * each
        starts = [one.data_ptr() + layer * stride for one in self._memory for layer in range(each)]
        self.blocks = [(start + block * BLOCK, BLOCK, 0) for start in starts for block in range(self._blocks)]
        self._local = agent.prep_xfer_dlist("NIXL_INIT_AGENT", agent.get_xfer_descs(self.blocks, "VRAM"))
        self._remote: tuple[str, Any] | None = None

    @property
    def metadata(self) -> bytes:
        return bytes(self._agent.get_agent_metadata())

    def add(self, metadata: bytes, blocks: list[tuple[int, int, int]]) -> None:
        name = self._agent.add_remote_agent(metadata)
        self._remote = name, self._agent.prep_xfer_dlist(name, self._agent.get_xfer_descs(blocks, "VRAM"))

    def move(self, operation: str, count: int, at_once: int) -> dict[str, float]:
        """GB/s of the first transfer, and the median and minimum of the others."""
        assert self._remote  # noqa: S101
        speeds: list[float] = []
        running: list[Any] = []
        began, rest, failed = time.perf_counter(), list(range(count)), 0
        while (rest or running) and time.perf_counter() < began + 60:
            while rest and len(running) < at_once:
                start = rest.pop(0) % (self._blocks // PROMPT_BLOCKS) * PROMPT_BLOCKS
                of_layers = (layer * self._blocks + start for layer in range(self._layers))
                chosen = [first + block for first in of_layers for block in range(PROMPT_BLOCKS)]
                local, remote = self._local, self._remote[1]
                running.append(self._agent.make_prepped_xfer(operation, local, chosen, remote, chosen, b"done"))
                self._agent.transfer(running[-1])
            for handle in list(running):
                state = self._agent.check_xfer_state(handle)
                if state == "PROC":
                    continue
                if state == "DONE":
                    counted = self._agent.get_xfer_telemetry(handle)
                    speeds.append(counted.totalBytes / counted.xferDuration / 1e3)
                failed += state != "DONE"
                running.remove(handle)
                self._agent.release_xfer_handle(handle)
        moved = len(speeds) * PROMPT_BLOCKS * self._layers * BLOCK / 1e9
        later = sorted(speeds[1:]) or [0.0]
        result = {"first": speeds[0] if speeds else 0.0, "median": later[len(later) // 2], "min": later[0]}
        result |= {"all": moved / (time.perf_counter() - began), "failed": failed + len(running)}
        return {name: round(value, 1) for name, value in result.items()}

    def remove(self) -> None:
        assert self._remote  # noqa: S101
        self._agent.release_dlist_handle(self._remote[1])
        self._agent.remove_remote_agent(self._remote[0])

    def release(self) -> pdinference_cuda_ipc.Released:
        return pdinference_cuda_ipc.release_dead()


def _serve(pipe: Connection, gpu: int, variables: dict[str, str], regions: int, size: float) -> None:
    os.environ.update({**_AS_IN_VLLM, **variables, "CUDA_VISIBLE_DEVICES": str(gpu)})
    agent = _Agent(gpu, regions, size)
    pipe.send((agent.metadata, agent.blocks))
    while True:
        what, *given = pipe.recv()
        pipe.send(getattr(agent, what)(*given))


def _used(gpu: int) -> float:
    return round(float(pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(gpu)).used) / GIB, 2)


def _settled(gpu: int) -> float:
    last = -1.0
    for _ in range(20):
        time.sleep(0.15)
        last, before = _used(gpu), last
        if last == before:
            break
    return last


def measure(one: Try) -> dict[str, Any]:
    """Let peers die, and say what is in use on their GPU."""
    live = Peer(_serve, _LIVE, one.variables, one.regions, one.size, limit_s=_LIMIT_S)
    found: dict[str, Any] = {}
    for death in range(one.deaths):
        size = one.sizes[death] if one.sizes else one.size
        peer = Peer(_serve, _DEAD, one.variables, one.regions, size, limit_s=_LIMIT_S)
        live.ask("add", *peer.described)
        row = {f"{count} at once": live.ask("move", one.operation, one.prompts, count) for count in (1, 4)}
        row["alive"] = _used(_DEAD)
        peer.kill()
        row["killed"] = _settled(_DEAD)
        for step in one.steps:
            row[step] = live.ask(step), _settled(_DEAD)
        found[f"death {death + 1}"] = row
    live.kill()
    return found | {"the other ended too": _settled(_DEAD)}


def main() -> None:
    """Measure the tries that are named, or all."""
    import nixl._api  # noqa: F401, PLC0415 - the processes are copies of this one, which has imported all and not used CUDA
    import torch  # noqa: F401, PLC0415

    pynvml.nvmlInit()
    multiprocessing.set_start_method("fork")
    for name in sys.argv[1:] or TRIES:
        one = TRIES[name]
        print(json.dumps({"name": name} | one._asdict() | measure(one)), flush=True)


if __name__ == "__main__":
    main()
