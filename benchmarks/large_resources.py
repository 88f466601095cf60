"""How much memory the operator needs for resources as large as they may be, and for larger ones.

    uv run python -m benchmarks.large_resources            # 2,000 specs of 128 KiB on a control plane of its own

The specs hold random letters, so that nothing that compresses helps. They are stored before the operator starts,
without a webhook; `--oversized` makes some of them larger than what is allowed. The operator lists and watches them
all, and writes a status for each, which says what is wrong with the oversized ones.
"""

import argparse
import asyncio
import random
import string
import subprocess
import time

import aiohttp

from benchmarks.burst import NAMESPACE, OPERATOR, PORT, each, namespace_of, operator_process, prepare, resource
from benchmarks.memory import family_pss_mib, status_mib
from e2e.cluster import Cluster
from pdinference.api.bounds import MAX_SPEC_BYTES
from pdinference.cluster.client import ApiServer, Json, load_configuration
from pdinference.cluster.kinds import RESOURCE

_OVERSIZED = 1_300_000


async def measure(cluster: Cluster, count: int, oversized: int) -> None:
    """Store, start, wait until every status is written, and report."""
    api = ApiServer(await load_configuration(cluster.kubeconfig), user_agent="benchmark")
    try:
        await prepare(api)
        await namespace_of(api, NAMESPACE)
        sizes = [_OVERSIZED] * oversized + [MAX_SPEC_BYTES - 2_000] * (count - oversized)
        await each(api.create, [(RESOURCE.path(NAMESPACE), _large(n, size)) for n, size in enumerate(sizes)])
        with operator_process(cluster, OPERATOR, NAMESPACE) as process:
            started = time.monotonic()
            await _until_ready()
            ready = time.monotonic() - started
            peaks: dict[str, float] = {}
            await _until_reported(process, count, peaks)
            reported = time.monotonic() - started
            print(f"{count} resources, {oversized} of them of {_OVERSIZED} bytes")
            print(f"  ready after {ready:.1f} s, all statuses after {reported:.1f} s")
            for name, mib in peaks.items():
                print(f"  {name}: {mib:.0f} MiB")
            print(f"  operator, VmHWM: {status_mib(process.pid, 'VmHWM'):.0f} MiB")
    finally:
        await api.close()


def _large(number: int, size: int) -> Json:
    chance = random.Random(number)
    found = resource(number, NAMESPACE)
    letters = "".join(chance.choices(string.ascii_letters + string.digits, k=size))
    found["spec"].setdefault("router", {})["podTemplate"] = {"metadata": {"annotations": {"x": letters}}}
    return found


async def _until_ready() -> None:
    """Without a deadline of its own: storing and listing take as long as the machine needs."""
    while True:
        try:
            async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{PORT}/readyz") as response:
                if response.status == 200:
                    return
        except aiohttp.ClientError:
            pass
        await asyncio.sleep(0.1)


async def _until_reported(process: subprocess.Popen[bytes], count: int, peaks: dict[str, float]) -> None:
    while True:
        if process.poll() is not None:
            raise SystemExit(f"The operator ended with {process.returncode}.")
        found = family_pss_mib(process.pid)
        peaks["operator, PSS"] = max(peaks.get("operator, PSS", 0), found[0])
        peaks["its other processes, PSS"] = max(peaks.get("its other processes, PSS", 0), sum(found[1:]))
        peaks["together, PSS"] = max(peaks.get("together, PSS", 0), sum(found))
        if await _metric("pdinference_status_writes_total") >= count:
            return
        await asyncio.sleep(0.5)


async def _metric(name: str) -> float:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{PORT}/metrics") as response:
        lines = (await response.text()).splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith((f"{name} ", f"{name}{{")))


def main() -> None:
    """Measure, on a cluster that is brought up for it and taken down."""
    parser = argparse.ArgumentParser(description="Measure the operator's memory with large resources.")
    parser.add_argument("count", nargs="?", type=int, default=2_000, help="number of resources (default: 2,000)")
    parser.add_argument("--oversized", type=int, default=0, help="how many are larger than allowed (default: none)")
    parser.add_argument("--cluster", default="large", help="name of the cluster (default: large)")
    arguments = parser.parse_args()
    with Cluster.fresh(arguments.cluster, nodes=0) as cluster:
        asyncio.run(measure(cluster, arguments.count, arguments.oversized))


if __name__ == "__main__":
    main()
