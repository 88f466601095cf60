"""How fast, how small and how quiet the operator is: N resources at once, against bare applies on the same API server.

    uv run python -m benchmarks.burst            # 500 resources on a control plane of its own
    uv run python -m benchmarks.burst 200 --rounds 3 --operators ../old/.venv/bin/pdinference .venv/bin/pdinference

With several operators each round measures all of them, one after the other, in a namespace of its own each: what the
machine does besides then meets all alike. Medians and the ratio to the first are reported.

No kubelet is needed: the bar is what reaches the API server. Three things are measured in one run, one after the other:

1. bare: the very same children, sent by server-side apply alone, as fast as one Python process can with the same
   client and as many requests under way; nothing reads, watches or compares;
2. burst: the operator, a process of its own, gets N resources at once and must bring all children and first statuses;
3. steady: after that, for a while, nobody changes anything, and every request of the operator is counted in the API
   server's audit log.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import yaml

from benchmarks.memory import cpu_seconds, family_cpu_seconds, family_pss_mib
from e2e.cluster import Cluster
from pdinference.api import names
from pdinference.api.crd import definitions
from pdinference.api.v1alpha1 import PDInference
from pdinference.cluster.child import child_key
from pdinference.cluster.client import ApiServer, Json, load_configuration
from pdinference.cluster.errors import ApiError
from pdinference.cluster.kinds import BATCH, CHILD_BY_NAME, CHILDREN, RESOURCE
from pdinference.manifests import RenderSettings, render

EXAMPLE = Path(__file__).parent.parent / "examples" / "tiny-cpu.yaml"
NAMESPACE, BARE_NAMESPACE = "burst", "burst-bare"
_KINDS = tuple(kind for kind in CHILDREN if not kind.optional)
"""Kinds of children that every cluster serves; the resources here have no other ones."""
IN_FLIGHT = 32
QUIET_S = 10.0
OPERATOR = str(Path(sys.executable).with_name("pdinference"))
PORT = 18099


@dataclass(frozen=True)
class Result:
    """All measured figures."""

    operator: str
    load: float
    resources: int
    children: int
    bare_children_per_second: float
    operator_children_per_second: float
    operator_seconds: float
    operator_cpu_seconds: float
    family_cpu_seconds: float
    operator_mib: float
    processes_mib: float
    operator_mib_before: float
    processes_mib_before: float
    steady_seconds: float
    steady_writes: int
    steady_reads: int

    @property
    def ratio(self) -> float:
        """Of the bare rate."""
        return self.operator_children_per_second / self.bare_children_per_second


async def measure(
    cluster: Cluster, count: int, steady_seconds: float, operators: Sequence[str], rounds: int
) -> list[Result]:
    """Run all three parts, with each operator in each round."""
    api = ApiServer(await load_configuration(cluster.kubeconfig), user_agent="benchmark")
    results = []
    try:
        await prepare(api)
        for number, operator in enumerate(tuple(operators) * rounds):
            results.append(
                await _once(cluster, api, operator, count, steady_seconds, namespace=f"{NAMESPACE}-{number}")
            )
            _report(results[-1])
    finally:
        await api.close()
    return results


async def _once(
    cluster: Cluster, api: ApiServer, operator: str, count: int, steady_seconds: float, *, namespace: str
) -> Result:
    await namespace_of(api, namespace)
    bare_rate = await _bare(api, count)
    with operator_process(cluster, operator, namespace) as process:
        await until_ready()
        before = family_pss_mib(process.pid)
        started, cpu, family = time.monotonic(), cpu_seconds(process.pid), family_cpu_seconds(process.pid)
        await create_resources(api, namespace, count)
        children = count * len(_children(0, namespace))
        await until_children(api, namespace, children)
        took = time.monotonic() - started
        cpu, family = cpu_seconds(process.pid) - cpu, family_cpu_seconds(process.pid) - family
        await until_quiet(cluster.audit_log)
        offset = _size(cluster.audit_log)
        await asyncio.sleep(steady_seconds)
        verbs = _requests(cluster.audit_log, offset)
        after = family_pss_mib(process.pid)
    return Result(
        operator=operator,
        load=os.getloadavg()[0],
        resources=count,
        children=children,
        bare_children_per_second=bare_rate,
        operator_children_per_second=children / took,
        operator_seconds=took,
        operator_cpu_seconds=cpu,
        family_cpu_seconds=family,
        operator_mib=after[0],
        processes_mib=sum(after),
        operator_mib_before=before[0],
        processes_mib_before=sum(before),
        steady_seconds=steady_seconds,
        steady_writes=sum(verbs[verb] for verb in ("create", "update", "patch", "delete")),
        steady_reads=verbs["get"] + verbs["list"],
    )


async def create_resources(api: ApiServer, namespace: str, count: int) -> None:
    """Create so many resources at once."""
    await each(api.create, [(RESOURCE.path(namespace), resource(n, namespace)) for n in range(count)])


async def prepare(api: ApiServer) -> None:
    """Install the CRDs."""
    for name, crd in definitions().items():
        path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"
        await api.apply(path, crd, manager="benchmark")
    await namespace_of(api, BARE_NAMESPACE)
    while True:
        try:
            await api.get(RESOURCE.path(BARE_NAMESPACE))
            await api.get(BATCH.path(BARE_NAMESPACE))
        except ApiError:
            await asyncio.sleep(0.2)
        else:
            return


async def namespace_of(api: ApiServer, namespace: str) -> None:
    """Create a namespace."""
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    await api.apply(f"/api/v1/namespaces/{namespace}", body, manager="benchmark")


async def _bare(api: ApiServer, count: int) -> float:
    """Children per second with nothing but applies; they go again before the operator starts."""
    manifests = [manifest for number in range(count) for manifest in _children(number, BARE_NAMESPACE)]

    async def apply(path: str, manifest: Json) -> None:
        await api.apply(path, manifest, manager="benchmark")

    started = time.monotonic()
    await each(apply, [(_path(manifest), manifest) for manifest in manifests])
    rate = len(manifests) / (time.monotonic() - started)
    await _clear(api, BARE_NAMESPACE)
    return rate


async def _clear(api: ApiServer, namespace: str) -> None:
    """Delete all children, so that the operator meets as empty a cluster as the bare applies did."""
    for kind in reversed(_KINDS):
        items = (await api.get(kind.path(namespace), labelSelector=names.MANAGED_SELECTOR))["items"]

        async def delete(path: str, uid: str) -> None:
            await api.delete(path, uid=uid)

        await each(delete, [(kind.path(namespace, i["metadata"]["name"]), i["metadata"]["uid"]) for i in items])


async def each(call: Any, arguments: list[tuple[Any, ...]]) -> None:
    """Call for all arguments, a number of them at a time."""
    waiting: Iterator[tuple[Any, ...]] = iter(arguments)

    async def lane() -> None:
        for each in waiting:
            await call(*each)

    await asyncio.gather(*(lane() for _ in range(IN_FLIGHT)))


async def until_ready() -> None:
    """Wait for /readyz."""
    for _ in range(300):
        connection = asyncio.open_connection("127.0.0.1", PORT)
        try:
            reader, writer = await connection
            writer.write(b"GET /readyz HTTP/1.0\r\n\r\n")
            answer = await reader.read()
            writer.close()
            if b" 200 " in answer:
                return
        except OSError:
            pass
        await asyncio.sleep(0.1)
    raise SystemExit("The operator did not get ready within 30 s.")


async def until_children(api: ApiServer, namespace: str, wanted: int) -> None:
    """Wait for the last child; one object of each kind is read, and the API server tells how many more there are."""
    while await _count(api, namespace) < wanted:  # noqa: ASYNC110
        await asyncio.sleep(0.5)


async def until_quiet(audit_log: Path) -> None:
    """Wait until Kubernetes' controllers have written their statuses, and the operator has taken them in."""
    while True:
        offset = _size(audit_log)
        await asyncio.sleep(QUIET_S)
        if not _requests(audit_log, offset):
            return


async def _count(api: ApiServer, namespace: str) -> int:
    total = 0
    for kind in _KINDS:
        page = await api.get(kind.path(namespace), limit="1")
        total += len(page["items"]) + page["metadata"].get("remainingItemCount", 0)
    return total - 1  # the namespace's own service account


@contextmanager
def operator_process(cluster: Cluster, operator: str, namespace: str) -> Iterator[subprocess.Popen[bytes]]:
    """The operator of one namespace, as a process."""
    command = [
        *(operator, "run", "--namespace", namespace, "--no-leader-elect", "--kubeconfig", str(cluster.kubeconfig)),
        *("--health-port", str(PORT), "--log-level", "warning"),
    ]
    process = subprocess.Popen(command)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(timeout=30)


def resource(number: int, namespace: str) -> Json:
    """A resource without pods."""
    document: Json = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    document["metadata"] = {"name": f"m{number}", "namespace": namespace}
    for role in ("parameter", "decode", "router"):  # pods are other controllers' work, at 20 requests a second
        document["spec"].setdefault(role, {})["replicas"] = 0
    return document


def _children(number: int, namespace: str) -> list[Json]:
    found = PDInference.model_validate(resource(number, namespace))
    manifests = [dict(manifest) for manifest in render(found, RenderSettings()).objects]
    for manifest in manifests:  # the owner does not exist here, and garbage collection would remove them meanwhile
        manifest["metadata"] = {k: v for k, v in manifest["metadata"].items() if k != "ownerReferences"}
    return manifests


def _path(manifest: Json) -> str:
    key = child_key(manifest)
    return CHILD_BY_NAME[key.kind].path(key.namespace, key.name)


def _requests(audit_log: Path, offset: int) -> Counter[str]:
    """The operator's requests by verb, from the audit log."""
    verbs: Counter[str] = Counter()
    with audit_log.open("rb") as log:
        log.seek(offset)
        for line in log:
            event = json.loads(line)
            if event.get("userAgent") == names.FIELD_MANAGER and event["stage"] == "ResponseComplete":
                # A watch that ends and starts again after some minutes is neither a read of an object nor a write.
                verbs[event["verb"]] += 1
    return verbs


def _size(path: Path) -> int:
    return path.stat().st_size


def _report(result: Result) -> None:
    rows = [
        ("operator", f"{result.operator} (load {result.load:.0f})"),
        ("children, bare applies", f"{result.bare_children_per_second:.0f}/s"),
        ("children, operator", f"{result.operator_children_per_second:.0f}/s ({result.ratio:.0%} of bare)"),
        ("burst took", f"{result.operator_seconds:.1f} s for {result.children} children"),
        (
            "operator CPU",
            f"{result.operator_cpu_seconds:.1f} s, {result.family_cpu_seconds:.1f} s with its processes",
        ),
        ("operator memory", f"{result.operator_mib:.0f} MiB (empty: {result.operator_mib_before:.0f})"),
        ("with its processes", f"{result.processes_mib:.0f} MiB (empty: {result.processes_mib_before:.0f})"),
        (
            "steady state",
            f"{result.steady_writes} writes, {result.steady_reads} reads in {result.steady_seconds:.0f} s",
        ),
    ]
    for label, value in rows:
        print(f"{label:24}{value}")
    print(json.dumps({**asdict(result), "ratio": result.ratio}), flush=True)


def _compare(results: Sequence[Result], operators: Sequence[str]) -> None:
    """Medians of each operator, and CPU time beside the first one's."""
    first = None
    for operator in operators:
        own = [result for result in results if result.operator == operator]
        cpu = median(result.family_cpu_seconds for result in own) / own[0].resources
        first = first or cpu
        rate, mib = median(result.ratio for result in own), median(result.processes_mib for result in own)
        print(f"{operator}: {cpu * 1000:.1f} ms CPU a resource ({cpu / first:.2f}), {rate:.0%} of bare, {mib:.0f} MiB")


def main() -> None:
    """Measure, on a cluster that is brought up for it and taken down."""
    parser = argparse.ArgumentParser(description="Measure the operator under a burst of resources.")
    parser.add_argument("count", nargs="?", type=int, default=500, help="number of resources (default: 500)")
    parser.add_argument("--steady-seconds", type=float, default=60, help="length of the quiet window (default: 60)")
    parser.add_argument("--cluster", default="burst", help="name of the cluster (default: burst)")
    parser.add_argument("--operators", nargs="+", default=[OPERATOR], help="programs to compare (default: this one)")
    parser.add_argument("--rounds", type=int, default=1, help="times that each is measured (default: 1)")
    arguments = parser.parse_args()
    with Cluster.fresh(arguments.cluster, nodes=0) as cluster:
        results = asyncio.run(
            measure(cluster, arguments.count, arguments.steady_seconds, arguments.operators, arguments.rounds)
        )
    _compare(results, arguments.operators)


if __name__ == "__main__":
    main()
