"""CPU time of the router's decision which way a request goes: `python -m benchmarks.router_decision`; no cluster.

A conversation of 8 KB among 100,000 known pieces, with 4 P and 12 D pods. Prints microseconds and the index's MiB.
"""

import asyncio
import json
import time
import tracemalloc
from typing import Final

from multidict import CIMultiDict

from pdinference.api.names import Role
from pdinference.router.adaptive import Adaptive
from pdinference.router.calls import Call, read_call
from pdinference.router.pieces import chain_of
from pdinference.router.pod import Observed
from pdinference.router.pods import Pods
from pdinference.router.prefixes import Chain
from pdinference.router.ways import ALL_WAYS

KNOWN: Final = 100_000
TIMES: Final = 2_000
PODS: Final = {f"p{n}": Role.PARAMETER for n in range(4)} | {f"d{n}": Role.DECODE for n in range(12)}


async def conversation() -> Call:
    """Eight turns of a kilobyte."""
    roles = ("user", "assistant")
    messages = [{"role": roles[n % 2], "content": f"{n} {'word ' * 200}"} for n in range(9)]
    body = json.dumps({"model": "m", "messages": messages, "stream": True}).encode()
    return await read_call("/v1/chat/completions", body, "application/json", CIMultiDict())


def adaptive() -> Adaptive:
    """A router that knows its pods."""
    pods = Pods()
    pods.observe({name: Observed(name, name, role, name, ready=True) for name, role in PODS.items()})
    found = Adaptive(pods)
    for number in range(5):
        found.speeds.prompts[Role.PARAMETER].observe(number * 1000, number * 0.03)
        found.speeds.hand_overs.observe(number * 1000, 0.02)
        found.speeds.steps[Role.DECODE].observe(number * 10, 0.007 + number * 0.001)
    return found


async def main() -> None:
    """Measure."""
    call, router = await conversation(), adaptive()
    parameter, decode = (list(router.pods.available(role)) for role in (Role.PARAMETER, Role.DECODE))
    decode = [pod for pod in router.pods if pod.observed.role is Role.DECODE]
    tracemalloc.start()
    for number in range(KNOWN // 10):
        router.index.add(Chain.of(b"%d %d" % (number, piece) for piece in range(10)), decode[number % len(decode)])
    memory = tracemalloc.get_traced_memory()[0] / 2**20
    tracemalloc.stop()
    router.index.add(chain_of(call), decode[3])
    began = time.process_time()
    for _ in range(TIMES):
        router.choose(call, parameter, decode, ALL_WAYS)
    taken = (time.process_time() - began) / TIMES * 1e6
    print(f"{taken:.0f} us for a decision, {len(router.index):,} pieces in {memory:.0f} MiB")


if __name__ == "__main__":
    asyncio.run(main())
