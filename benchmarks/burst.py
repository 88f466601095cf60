"""How fast, how small and how quiet the operator is: N resources at once, against bare applies on the same API server.

    uv run python -m benchmarks.burst            # 500 resources on a control plane of its own

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
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.memory import family_pss_mib
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
IN_FLIGHT = 32
QUIET_S = 10.0
PORT = 18099


@dataclass(frozen=True)
class Result:
    """All measured figures."""

    resources: int
    children: int
    bare_children_per_second: float
    operator_children_per_second: float
    operator_seconds: float
    operator_cpu_seconds: float
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


async def measure(cluster: Cluster, count: int, steady_seconds: float) -> Result:
    """Run all three parts."""
    api = ApiServer(await load_configuration(cluster.kubeconfig), user_agent="benchmark")
    try:
        await _prepare(api)
        bare_rate = await _bare(api, count)
        with _operator(cluster) as process:
            await _until_ready()
            before = family_pss_mib(process.pid)
            started, cpu = time.monotonic(), _cpu_seconds(process.pid)
            await _each(api.create, [(RESOURCE.path(NAMESPACE), _resource(n, NAMESPACE)) for n in range(count)])
            children = count * len(_children(0, NAMESPACE))
            await _until_children(api, children)
            took = time.monotonic() - started
            cpu = _cpu_seconds(process.pid) - cpu
            await _until_quiet(cluster.audit_log)
            offset = _size(cluster.audit_log)
            await asyncio.sleep(steady_seconds)
            verbs = _requests(cluster.audit_log, offset)
            after = family_pss_mib(process.pid)
        return Result(
            resources=count,
            children=children,
            bare_children_per_second=bare_rate,
            operator_children_per_second=children / took,
            operator_seconds=took,
            operator_cpu_seconds=cpu,
            operator_mib=after[0],
            processes_mib=sum(after),
            operator_mib_before=before[0],
            processes_mib_before=sum(before),
            steady_seconds=steady_seconds,
            steady_writes=sum(verbs[verb] for verb in ("create", "update", "patch", "delete")),
            steady_reads=verbs["get"] + verbs["list"],
        )
    finally:
        await api.close()


async def _prepare(api: ApiServer) -> None:
    for name, crd in definitions().items():
        path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"
        await api.apply(path, crd, manager="benchmark")
    for namespace in (NAMESPACE, BARE_NAMESPACE):
        await _again(api, namespace)
    while True:
        try:
            await api.get(RESOURCE.path(NAMESPACE))
            await api.get(BATCH.path(NAMESPACE))
        except ApiError:
            await asyncio.sleep(0.2)
        else:
            return


async def _again(api: ApiServer, namespace: str) -> None:
    """An empty namespace."""
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    await api.apply(f"/api/v1/namespaces/{namespace}", body, manager="benchmark")


async def _bare(api: ApiServer, count: int) -> float:
    """Children per second with nothing but applies; they go again before the operator starts."""
    manifests = [manifest for number in range(count) for manifest in _children(number, BARE_NAMESPACE)]

    async def apply(path: str, manifest: Json) -> None:
        await api.apply(path, manifest, manager="benchmark")

    started = time.monotonic()
    await _each(apply, [(_path(manifest), manifest) for manifest in manifests])
    rate = len(manifests) / (time.monotonic() - started)
    await _clear(api, BARE_NAMESPACE)
    return rate


async def _clear(api: ApiServer, namespace: str) -> None:
    """Delete all children, so that the operator meets as empty a cluster as the bare applies did."""
    for kind in reversed(CHILDREN):
        items = (await api.get(kind.path(namespace), labelSelector=names.MANAGED_SELECTOR))["items"]

        async def delete(path: str, uid: str) -> None:
            await api.delete(path, uid=uid)

        await _each(delete, [(kind.path(namespace, i["metadata"]["name"]), i["metadata"]["uid"]) for i in items])


async def _each(call: Any, arguments: list[tuple[Any, ...]]) -> None:
    """Call for all arguments, a number of them at a time."""
    waiting: Iterator[tuple[Any, ...]] = iter(arguments)

    async def lane() -> None:
        for each in waiting:
            await call(*each)

    await asyncio.gather(*(lane() for _ in range(IN_FLIGHT)))


async def _until_ready() -> None:
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


async def _until_children(api: ApiServer, wanted: int) -> None:
    """Wait for the last child; one object of each kind is read, and the API server tells how many more there are."""
    while await _count(api) < wanted:  # noqa: ASYNC110
        await asyncio.sleep(0.5)


async def _until_quiet(audit_log: Path) -> None:
    """Wait until Kubernetes' controllers have written their statuses, and the operator has taken them in."""
    while True:
        offset = _size(audit_log)
        await asyncio.sleep(QUIET_S)
        if not _requests(audit_log, offset):
            return


async def _count(api: ApiServer) -> int:
    total = 0
    for kind in CHILDREN:
        page = await api.get(kind.path(NAMESPACE), limit="1")
        total += len(page["items"]) + page["metadata"].get("remainingItemCount", 0)
    return total - 1  # the namespace's own service account


@contextmanager
def _operator(cluster: Cluster) -> Iterator[subprocess.Popen[bytes]]:
    command = [
        *(str(Path(sys.executable).with_name("pdinference")), "run", "--namespace", NAMESPACE, "--no-leader-elect"),
        *("--kubeconfig", str(cluster.kubeconfig), "--health-port", str(PORT), "--log-level", "warning"),
    ]
    process = subprocess.Popen(command)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(timeout=30)


def _resource(number: int, namespace: str) -> Json:
    document: Json = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    document["metadata"] = {"name": f"m{number}", "namespace": namespace}
    for role in ("parameter", "decode", "router"):  # pods are other controllers' work, at 20 requests a second
        document["spec"].setdefault(role, {})["replicas"] = 0
    return document


def _children(number: int, namespace: str) -> list[Json]:
    resource = PDInference.model_validate(_resource(number, namespace))
    manifests = [dict(manifest) for manifest in render(resource, RenderSettings()).objects]
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


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _report(result: Result) -> None:
    rows = [
        ("children, bare applies", f"{result.bare_children_per_second:.0f}/s"),
        ("children, operator", f"{result.operator_children_per_second:.0f}/s ({result.ratio:.0%} of bare)"),
        ("burst took", f"{result.operator_seconds:.1f} s for {result.children} children"),
        ("operator CPU", f"{result.operator_cpu_seconds:.1f} s"),
        ("operator memory", f"{result.operator_mib:.0f} MiB (empty: {result.operator_mib_before:.0f})"),
        ("with its processes", f"{result.processes_mib:.0f} MiB (empty: {result.processes_mib_before:.0f})"),
        (
            "steady state",
            f"{result.steady_writes} writes, {result.steady_reads} reads in {result.steady_seconds:.0f} s",
        ),
    ]
    for label, value in rows:
        print(f"{label:24}{value}")
    print(json.dumps({**asdict(result), "ratio": result.ratio}))


def main() -> None:
    """Measure, on a cluster that is brought up for it and taken down."""
    parser = argparse.ArgumentParser(description="Measure the operator under a burst of resources.")
    parser.add_argument("count", nargs="?", type=int, default=500, help="number of resources (default: 500)")
    parser.add_argument("--steady-seconds", type=float, default=60, help="length of the quiet window (default: 60)")
    parser.add_argument("--cluster", default="burst", help="name of the cluster (default: burst)")
    arguments = parser.parse_args()
    with Cluster.fresh(arguments.cluster, nodes=0) as cluster:
        _report(asyncio.run(measure(cluster, arguments.count, arguments.steady_seconds)))


if __name__ == "__main__":
    main()
