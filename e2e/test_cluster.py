"""The local cluster's own tests: what everything else in e2e relies on. Needs root; `prepare` takes minutes once."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from unittest.mock import Mock

import pytest

from e2e.cluster import Cluster, ClusterError, build, images, processes, teardown
from e2e.cluster.commands import run, succeeds
from e2e.cluster.containerd import Containerd
from e2e.cluster.spec import SPEC_FILE, ClusterSpec
from e2e.cluster.waiting import wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces and containers need root")

NAME = "selftest"

PROBES = """
apiVersion: v1
kind: Service
metadata: {name: probes}
spec: {type: NodePort, selector: {app: probe}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: probes}
spec:
  selector: {matchLabels: {app: probe}}
  template:
    metadata: {labels: {app: probe}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - name: probe
        image: localhost/pdinference/probe:1
        args: [serve, ":8080"]
        ports: [{name: web, containerPort: 8080}]
        readinessProbe: {httpGet: {port: 8080, path: /}, periodSeconds: 1}
"""

POLICY = """
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: probes}
spec:
  podSelector: {matchLabels: {app: probe}}
  policyTypes: [Ingress]
  ingress:
  - from: [{podSelector: {matchLabels: {app: friend}}}]
    ports: [{port: web}]
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster.fresh(NAME, nodes=2, policies=True) as up:
        up.kubectl("apply", "--filename=-", stdin=PROBES)
        up.kubectl("rollout", "status", "daemonset/probes", "--timeout=300s", timeout=310)
        yield up
    assert leftovers(up.spec) == []


def leftovers(spec: ClusterSpec) -> list[str]:
    """Everything that a cluster may have left on this machine."""
    found = [f"process {pid}" for pid in processes.marked_processes(spec)]
    found += [f"namespace {path}" for path in Path("/run/netns").glob(f"{spec.netns}*")]
    found += [f"link {spec.host_link}"] if succeeds(["ip", "link", "show", spec.host_link]) else []
    found += [f"mount {mount}" for mount in teardown.mounts_below(spec.folder)]
    found += [f"cgroup {path}" for path in Path("/sys/fs/cgroup").glob(f"**/pdinference/{spec.name}")]
    found += [f"file {path}" for path in Path("/var/lib/cni").glob(f"results/pdinference-{spec.name}-*")]
    logs = Path("/var/log/containers").glob("*.log")
    found += [f"file {path}" for path in logs if path.readlink().is_relative_to(spec.folder)]
    found += [f"folder {spec.folder}"] if spec.folder.exists() else []
    return found


def probe_pods(cluster: Cluster) -> dict[str, dict[str, str]]:
    """Each probe pod's name, with its node and address."""
    pods = json.loads(cluster.kubectl("get", "pods", "--selector=app=probe", "--output=json"))["items"]
    return {pod["metadata"]["name"]: {"node": pod["spec"]["nodeName"], "ip": pod["status"]["podIP"]} for pod in pods}


def fetch(cluster: Cluster, pod: str, url: str) -> str:
    return cluster.kubectl("exec", pod, "--", "/probe", "get", url)


def await_answers(cluster: Cluster, pod: str, url: str, expected: set[str]) -> None:
    answers: set[str] = set()

    def all_answered() -> bool:
        with suppress(ClusterError):  # kube-proxy may not know the service yet, nor a restarted kubelet its pods
            answers.add(fetch(cluster, pod, url))
        return answers == expected

    wait_until(f"{expected} to answer {pod}", all_answered, timeout=300)


def run_on_all_nodes(cluster: Cluster, image: str) -> list[set[str]]:
    """Run an image once on each node, and tell what each container had in its root folder."""
    pods = [f"loaded-{node.number}" for node in cluster.spec.node_specs]
    for pod, node in zip(pods, cluster.spec.node_specs, strict=True):
        overrides = json.dumps({"spec": {"nodeName": node.name, "terminationGracePeriodSeconds": 0}})
        flags = [f"--image={image}", "--image-pull-policy=Never", f"--overrides={overrides}"]
        cluster.kubectl("run", pod, *flags, "--", "serve", ":8080")
    cluster.kubectl("wait", "--for=condition=Ready", *(f"pod/{pod}" for pod in pods), "--timeout=300s", timeout=310)
    found = []
    for pod in pods:
        identity = cluster.kubectl("get", "pod", pod, "--output=jsonpath={.status.containerStatuses[0].containerID}")
        (root,) = cluster.spec.folder.glob(f"nodes/*/run/io.containerd.runtime.v2.task/k8s.io/{identity[13:]}/rootfs")
        found.append({path.name for path in root.iterdir()})
    cluster.kubectl("delete", "pod", *pods)
    return found


def files_in(roots: list[set[str]]) -> set[str]:
    """What all of them have, without the folders that a container is given."""
    assert all(root == roots[0] for root in roots)
    return roots[0] - {"dev", "etc", "proc", "sys", "var"}


def test_two_nodes_are_ready_and_say_their_version(cluster: Cluster) -> None:
    nodes = json.loads(cluster.kubectl("get", "nodes", "--output=json"))["items"]
    assert [node["metadata"]["name"] for node in nodes] == [f"{NAME}-node-1", f"{NAME}-node-2"]
    for node in nodes:
        assert {entry["type"]: entry["status"] for entry in node["status"]["conditions"]}["Ready"] == "True"
        assert node["status"]["nodeInfo"]["kubeletVersion"].startswith("v1.36.")


def test_pods_reach_each_other_across_nodes(cluster: Cluster) -> None:
    (first, one), (second, other) = probe_pods(cluster).items()
    assert one["node"] != other["node"]
    assert fetch(cluster, first, f"http://{other['ip']}:8080") == second
    assert fetch(cluster, second, f"http://{one['ip']}:8080") == first


def test_services_are_found_by_name_and_reach_pods_on_all_nodes(cluster: Cluster) -> None:
    pods = probe_pods(cluster)
    await_answers(cluster, next(iter(pods)), "http://probes.default.svc.cluster.local", set(pods))


def test_a_policy_keeps_out_whom_it_does_not_name(cluster: Cluster) -> None:
    """On either node, by the pod's labels and the port's name; without the policy, both get in."""
    for name in ("friend", "stranger"):
        flags = [f"--labels=app={name}", "--image=localhost/pdinference/probe:1", "--image-pull-policy=IfNotPresent"]
        cluster.kubectl("run", name, *flags, "--", "serve", ":8080")
    cluster.kubectl("wait", "--for=condition=Ready", "pod/friend", "pod/stranger", "--timeout=300s", timeout=310)
    addresses = [pod["ip"] for pod in probe_pods(cluster).values()]

    def reached(source: str) -> int:
        found = 0
        for address in addresses:
            with suppress(ClusterError):
                found += bool(fetch(cluster, source, f"http://{address}:8080"))
        return found

    assert [reached("friend"), reached("stranger")] == [2, 2]
    cluster.kubectl("apply", "--filename=-", stdin=POLICY)
    wait_until("the policy to be enforced", lambda: reached("stranger") == 0, timeout=120)
    assert reached("friend") == 2
    cluster.stop_component("node-1/policy-agent", kill=True)
    assert reached("friend") < 2, "without the agent, nothing is forwarded"
    cluster.start_component("node-1/policy-agent")
    assert [reached("friend"), reached("stranger")] == [2, 0]
    cluster.kubectl("delete", "networkpolicy/probes", "pod/friend", "pod/stranger")


def test_the_api_server_and_the_host_reach_pods(cluster: Cluster) -> None:
    """Aggregated APIs and webhooks need the first, load generators on the host the second."""
    pods = probe_pods(cluster)
    assert cluster.kubectl("get", "--raw=/api/v1/namespaces/default/services/probes:80/proxy/") in pods
    port = cluster.kubectl("get", "service", "probes", "--output=jsonpath={.spec.ports[0].nodePort}")
    for node in cluster.spec.node_specs:
        assert run([build.binary("probe"), "get", f"http://{node.address}:{port}"]) in pods


def test_logs_and_port_forward_work(cluster: Cluster) -> None:
    pod = next(iter(probe_pods(cluster)))
    assert cluster.kubectl("logs", pod) == ""
    command = [build.binary("kubectl"), f"--kubeconfig={cluster.kubeconfig}", "port-forward", f"pod/{pod}", ":8080"]
    with subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, text=True) as forward:
        assert forward.stdout is not None
        port = forward.stdout.readline().split(" -> ")[0].rpartition(":")[2]
        assert run([build.binary("probe"), "get", f"http://127.0.0.1:{port}"]) == pod
        forward.terminate()


def test_nothing_leaves_the_machine(cluster: Cluster) -> None:
    """Ask the routing tables and send nothing: 203.0.113.1 belongs to nobody (RFC 5737)."""
    for netns in (cluster.spec.netns, *(node.netns for node in cluster.spec.node_specs)):
        with pytest.raises(ClusterError, match="No route to host"):
            run(["ip", "-netns", netns, "route", "get", "203.0.113.1"])
    for node in cluster.spec.node_specs:
        pod = next(pod for pod in probe_pods(cluster).values() if pod["node"] == node.name)
        veth = json.loads(run(["ip", "-netns", node.netns, "-json", "route", "get", pod["ip"]]))[0]["dev"]
        with pytest.raises(ClusterError, match="No route to host"):
            run(["ip", "-netns", node.netns, "route", "get", "203.0.113.1", "from", pod["ip"], "iif", veth])


def test_an_image_is_loaded_into_all_running_nodes_and_kept(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive, image = tmp_path / "image.tar", "localhost/selftest/probe:2"
    images.write_archive(archive, image, build.binary("probe"))
    cluster.load_image(archive)
    loads = Mock()
    monkeypatch.setattr(Containerd, "import_archive", loads)
    cluster.load_image(archive)
    assert not loads.called, "the second time, there is nothing to do"
    run_on_all_nodes(cluster, image)


@pytest.mark.skipif(shutil.which("buildah") is None, reason="needs buildah")
def test_an_image_is_taken_from_buildah_and_its_rebuild_too(cluster: Cluster, tmp_path: Path) -> None:
    """The second build removes a folder of the first: only if that works are the layers stacked correctly."""
    image = "localhost/selftest/built:1"
    buildah: list[str | Path] = ["buildah", "--root", tmp_path / "root", "--runroot", tmp_path / "run"]

    def build_image(base: str, change: Callable[[Path], object]) -> None:
        container = run([*buildah, "from", base]).strip()
        change(Path(run([*buildah, "mount", container]).strip()))
        run([*buildah, "config", "--entrypoint", '["/bin/probe"]', container])
        run([*buildah, "commit", "--quiet", "--rm", container, image])
        cluster.load_image(image, storage=tmp_path / "root")

    def first(root: Path) -> None:
        (root / "bin").mkdir()
        shutil.copy(build.binary("probe"), root / "bin" / "probe")
        (root / "old" / "folder").mkdir(parents=True)

    build_image("scratch", first)
    assert files_in(run_on_all_nodes(cluster, image)) == {"bin", "old"}
    build_image(image, lambda root: shutil.rmtree(root / "old"))
    assert files_in(run_on_all_nodes(cluster, image)) == {"bin"}
    run([*buildah, "rmi", "--all", "--force"])
    run_on_all_nodes(cluster, image)


def test_a_second_up_changes_nothing(cluster: Cluster) -> None:
    before = {component.name: component.pid() for component in cluster.components()}
    Cluster.up(NAME, nodes=2, policies=True)
    assert {component.name: component.pid() for component in cluster.components()} == before


def test_other_options_for_a_running_cluster_are_refused(cluster: Cluster) -> None:
    with pytest.raises(ClusterError, match="exists with nodes=2"):
        Cluster.up(cluster.name, nodes=0)


def test_up_repairs_what_was_killed_and_pods_live_on(cluster: Cluster) -> None:
    before = probe_pods(cluster)
    for component in cluster.components():
        if not component.name.startswith("node-2/"):
            cluster.stop_component(component.name, kill=True)
    Cluster.up(NAME, nodes=2, policies=True)
    assert all(component.pid() for component in cluster.components())
    assert probe_pods(cluster) == before
    for pod in before:
        await_answers(cluster, pod, "http://127.0.0.1:8080", {pod})


def test_a_second_cluster_beside_it(cluster: Cluster) -> None:
    with Cluster.up(f"{NAME}-2", nodes=0, kwok=True) as other:
        assert other.spec.server != cluster.spec.server
        assert other.kubectl("get", "nodes", "--output=name") == ""
        fake = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": "fake", "annotations": {"kwok.x-k8s.io/node": "fake"}},
        }
        other.kubectl("apply", "--filename=-", stdin=json.dumps(fake))
        other.kubectl("wait", "--for=condition=Ready", "node/fake", "--timeout=300s", timeout=310)
        other.kubectl("run", "pod", "--image=any")
        other.kubectl("wait", "--for=condition=Ready", "pod/pod", "--timeout=300s", timeout=310)

        other.stop_component("kube-apiserver")
        with pytest.raises(ClusterError):
            other.kubectl("get", "nodes")
        other.start_component("kube-apiserver")
        assert other.kubectl("get", "nodes", "--output=name") == "node/fake\n"

        entries = [json.loads(line) for line in other.audit_log.read_text().splitlines()]
        writes = [entry["objectRef"]["resource"] for entry in entries if entry["user"]["username"] == "admin"]
        assert {"nodes", "pods"} <= set(writes)

        with Cluster.fresh(other.name, nodes=0, kwok=True) as anew:
            assert anew.kubectl("get", "nodes", "--output=name") == "", "what a killed run left is gone"
    assert leftovers(other.spec) == []
    assert cluster.kubectl("get", "--raw=/readyz") == "ok"


@pytest.mark.parametrize("seconds", [0.5, 1, 4])
def test_up_after_up_was_killed(seconds: float) -> None:
    name = f"{NAME}-3"
    command = [sys.executable, "-m", "e2e.cluster", "up", "--name", name, "--nodes", "1"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=seconds)
        process.send_signal(signal.SIGKILL)
    with Cluster.up(name, nodes=1) as cluster:
        assert cluster.kubectl("get", "nodes", "--output=name") == f"node/{name}-node-1\n"
    assert leftovers(cluster.spec) == []


@pytest.mark.parametrize("name", ["", "Upper", "-x", "a.b", "x" * 21])
def test_a_name_that_could_not_work_is_refused(name: str) -> None:
    with pytest.raises(ClusterError, match="no name for a cluster"):
        Cluster.up(name)


def test_a_record_of_another_checkout_may_have_more_fields(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PDINFERENCE_STATE", str(tmp_path))
    mine = ClusterSpec(name="mine", nodes=0, audit=True, kwok=False, index=3)
    mine.save()
    file = mine.folder / SPEC_FILE
    file.write_text(json.dumps({**json.loads(file.read_text()), "newer": True}))
    assert ClusterSpec.load_all() == [mine]
