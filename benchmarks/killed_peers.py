"""Does a process survive when its NIXL peer is killed amid transfers? `python -m benchmarks.killed_peers` (with vLLM).

Two processes on this machine have a NIXL agent each, with 256 MiB of memory. The initiator keeps 840 transfers of 64
KiB under way: it reads, as D does with NixlConnector, or writes, as P does with NixlPushConnector. One of the two gets
SIGKILL after 0.02 to 0.4 s, and the other one a new peer, again and again. A line for each operation and victim says
after which deaths the other one had died too; it is started anew then.
"""

import multiprocessing
import os
import random
import time
from multiprocessing.connection import Connection
from typing import Any, Final

import click

from benchmarks.peers import Peer

_BLOCK, _BLOCKS = 2**16, 4096
_AT_ONCE: Final = 3
_EACH: Final = 280
_CASES: Final = (("READ", "initiator"), ("READ", "target"), ("WRITE", "initiator"), ("WRITE", "target"))
_LIMIT_S: Final = 60.0
_SETTLES_S: Final = 0.5
"""An agent that dies of its peer's end does so within milliseconds of it."""


@click.command(help=__doc__)
@click.option("--deaths", default=20, show_default=True, help="Of each case.")
@click.option("--variable", "variables", multiple=True, default=("UCX_TLS=tcp",), show_default=True, help="NAME=VALUE.")
def main(deaths: int, variables: tuple[str, ...]) -> None:
    """Measure all cases."""
    environment = dict(one.split("=", 1) for one in variables)
    for operation, victim in _CASES:
        found = _died(operation, victim, deaths, environment)
        click.echo(f"{operation}, {victim} killed {deaths} times: the other one died {len(found)} times {found}")


def _died(operation: str, victim: str, deaths: int, environment: dict[str, str]) -> list[int]:
    """The deaths after which the process that was not killed had died too."""
    start = {
        "initiator": lambda: Peer(_initiator, environment, operation, limit_s=_LIMIT_S),
        "target": lambda: Peer(_target, environment, limit_s=_LIMIT_S),
    }
    (other,) = set(start) - {victim}
    found, lives = [], dict[str, Peer]()
    for death in range(1, deaths + 1):
        lives[victim] = start[victim]()
        if other not in lives:
            lives[other] = start[other]()
        lives["initiator"].ask(*lives["target"].described)  # its answer: transfers are under way
        time.sleep(random.uniform(0.02, 0.4))  # how far they are when it ends is what varies
        lives.pop(victim).kill()
        if lives[other].ends_within(_SETTLES_S):
            found.append(death)
            del lives[other]
    for one in lives.values():
        one.kill()
    return found


def _agent(environment: dict[str, str]) -> tuple[Any, Any, list[tuple[int, int, int]]]:
    """An agent, its memory and the blocks of it."""
    os.environ.update(environment)
    import torch  # noqa: PLC0415 - after the environment is set
    from nixl._api import nixl_agent, nixl_agent_config  # noqa: PLC0415

    memory = torch.ones(_BLOCK * _BLOCKS, dtype=torch.uint8)
    agent = nixl_agent(f"agent-{os.getpid()}", nixl_agent_config(num_threads=4, capture_telemetry=True))  # as vLLM's
    agent.register_memory(agent.get_reg_descs([(memory.data_ptr(), memory.numel(), 0, "")], "DRAM"))
    return agent, memory, [(memory.data_ptr() + number * _BLOCK, _BLOCK, 0) for number in range(_BLOCKS)]


def _target(pipe: Connection, environment: dict[str, str]) -> None:
    agent, _memory, blocks = _agent(environment)
    pipe.send((agent.get_agent_metadata(), blocks))
    while True:
        agent.get_new_notifs()
        time.sleep(0.01)


def _initiator(pipe: Connection, environment: dict[str, str], operation: str) -> None:
    agent, _memory, blocks = _agent(environment)
    local = agent.prep_xfer_dlist("NIXL_INIT_AGENT", agent.get_xfer_descs(blocks, "DRAM"))
    pipe.send("ready")
    while True:
        metadata, remote_blocks = pipe.recv()
        name = agent.add_remote_agent(metadata)
        remote = agent.prep_xfer_dlist(name, agent.get_xfer_descs(remote_blocks, "DRAM"))
        state = _moved(agent, operation, local, remote)
        pipe.send("under way")
        while state == "DONE":
            state = _moved(agent, operation, local, remote)


def _moved(agent: Any, operation: str, local: Any, remote: Any) -> str:
    """How transfers at once ended: `DONE`, or another state."""
    from nixl._bindings import nixlBackendError, nixlRemoteDisconnectError  # noqa: PLC0415

    try:
        handles = []
        for _ in range(_AT_ONCE):
            chosen = [random.randrange(_BLOCKS) for _ in range(_EACH)]
            handles.append(agent.make_prepped_xfer(operation, local, chosen, remote, chosen, b"done"))
            agent.transfer(handles[-1])
        for handle in handles:
            while (state := agent.check_xfer_state(handle)) == "PROC":
                time.sleep(0.0002)
            if state != "DONE":
                return str(state)
            agent.release_xfer_handle(handle)
    except (nixlBackendError, nixlRemoteDisconnectError) as error:
        return type(error).__name__
    return "DONE"


if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    main()
