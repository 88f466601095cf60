"""Kubernetes' own admission of the restricted Pod Security Standard says the same of pods as our checker."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from pdinference.api.v1alpha1 import PDBatch
from pdinference.api.validation import validated
from pdinference.cluster.errors import ApiError
from pdinference.engine.batch import Service
from pdinference.manifests import RenderSettings, render
from pdinference.manifests.batch import render_batch
from pdinference.manifests.pod_security import restricted_problems
from tests.conftest import BATCH_EXAMPLE, EXAMPLES, FOR_EVERY_FIELD, example_documents
from tests.hostile.pod_templates import LEGITIMATE
from tests.integration.world import World

Json = dict[str, Any]
EVERY_FIELD = Path(__file__).parents[1] / "manifests" / "every_field.yaml"
LABEL = "pod-security.kubernetes.io/enforce"
# What other admission looks for in the cluster, and the standard says nothing of.
ELSEWHERE = ("priorityClassName", "runtimeClassName", "serviceAccountName", "resourceClaims", "imagePullSecrets")

GOOD: Json = {
    "metadata": {"labels": {"a": "b"}},
    "spec": {
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "runAsGroup": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                "name": "a",
                "image": "a:1",
                "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
            }
        ],
    },
}
Change = Callable[[Json], object]


def _volume(**volume: Any) -> Change:
    return lambda pod: pod["spec"].update(volumes=[{"name": "v", **volume}])


def _pod(**members: Any) -> Change:
    return lambda pod: pod["spec"].update(members)


def _pod_context(**members: Any) -> Change:
    return lambda pod: pod["spec"]["securityContext"].update(members)


def _container(**members: Any) -> Change:
    return lambda pod: pod["spec"]["containers"][0].update(members)


def _context(**members: Any) -> Change:
    return lambda pod: pod["spec"]["containers"][0]["securityContext"].update(members)


def _without(member: str) -> Change:
    return lambda pod: pod["spec"]["securityContext"].pop(member)


_CALL = {"host": "10.0.0.1", "port": 80}
BAD: dict[str, Change] = {
    "host-network": _pod(hostNetwork=True),
    "host-pid": _pod(hostPID=True),
    "host-ipc": _pod(hostIPC=True),
    "host-path": _volume(hostPath={"path": "/"}),
    "nfs": _volume(nfs={"server": "a", "path": "/"}),
    "iscsi": _volume(iscsi={"targetPortal": "1.2.3.4:3260", "iqn": "iqn.2001-04.com.example:storage", "lun": 0}),
    "fc": _volume(fc={"targetWWNs": ["50060e801049cfd1"], "lun": 0}),
    "flex-volume": _volume(flexVolume={"driver": "a/b"}),
    "git-repo": _volume(gitRepo={"repository": "https://a"}),
    "host-port": _container(ports=[{"containerPort": 80, "hostPort": 80}]),
    "privileged": _context(privileged=True, allowPrivilegeEscalation=True),
    "escalation": _context(allowPrivilegeEscalation=True),
    "escalation-not-said": lambda pod: pod["spec"]["containers"][0]["securityContext"].pop("allowPrivilegeEscalation"),
    "no-context": lambda pod: pod["spec"]["containers"][0].pop("securityContext"),
    "keeps-capabilities": _context(capabilities={"drop": ["NET_RAW"]}),
    "ipc-lock": _context(capabilities={"drop": ["ALL"], "add": ["IPC_LOCK"]}),
    "sys-admin": _context(capabilities={"drop": ["ALL"], "add": ["SYS_ADMIN"]}),
    "may-be-root": _context(runAsNonRoot=False),
    "may-be-root-by-silence": _without("runAsNonRoot"),
    "root": _context(runAsUser=0),
    "pod-root": _pod_context(runAsUser=0),
    "no-seccomp": _without("seccompProfile"),
    "unconfined": _context(seccompProfile={"type": "Unconfined"}),
    "pod-unconfined": _pod_context(seccompProfile={"type": "Unconfined"}),
    "app-armor": _context(appArmorProfile={"type": "Unconfined"}),
    "se-linux-type": _context(seLinuxOptions={"type": "spc_t"}),
    "se-linux-user": _context(seLinuxOptions={"user": "system_u"}),
    "sysctl": _pod_context(sysctls=[{"name": "kernel.msgmax", "value": "1"}]),
    "probe-host": _container(livenessProbe={"httpGet": _CALL}),
    "socket-host": _container(readinessProbe={"tcpSocket": _CALL}),
    "hook-host": _container(lifecycle={"preStop": {"httpGet": _CALL}}),
    "init-container": _pod(initContainers=[{"name": "i", "image": "i:1"}]),
}
ALSO_GOOD: dict[str, Change] = {
    "as-it-is": lambda _: None,
    "volumes": _pod(
        volumes=[
            {"name": "a", "emptyDir": {}},
            {"name": "b", "configMap": {"name": "x"}},
            {"name": "c", "secret": {"secretName": "x"}},
            {"name": "d", "persistentVolumeClaim": {"claimName": "x"}},
            {"name": "e", "projected": {"sources": [{"configMap": {"name": "x"}}]}},
            {"name": "f", "image": {"reference": "x:1"}},
            {"name": "g", "downwardAPI": {"items": []}},
            {"name": "h", "csi": {"driver": "a"}},
        ]
    ),
    "bind": _context(capabilities={"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}),
    "own-user": _context(runAsUser=1000, runAsNonRoot=True),
    "own-seccomp": _context(seccompProfile={"type": "RuntimeDefault"}),
    "safe-sysctl": _pod_context(sysctls=[{"name": "net.ipv4.tcp_syncookies", "value": "1"}]),
    "probes": _container(livenessProbe={"httpGet": {"port": 80}}, readinessProbe={"exec": {"command": ["true"]}}),
    "hook": _container(lifecycle={"preStop": {"sleep": {"seconds": 1}}}),
}


@pytest.fixture
async def restricted(world: World) -> World:
    """The test's namespace takes restricted pods only."""
    await world.api.merge(f"/api/v1/namespaces/{world.namespace}", {"metadata": {"labels": {LABEL: "restricted"}}})
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "pods"}}
    await world.api.create(f"/api/v1/namespaces/{world.namespace}/serviceaccounts", account)
    return world


async def verdict(world: World, template: Json) -> str:
    """Why Kubernetes would not admit a pod by the standard; empty where it would."""
    spec = {name: value for name, value in template["spec"].items() if name not in ELSEWHERE}
    for container in (*spec["containers"], *spec.get("initContainers", ())):
        container.get("resources", {}).pop("claims", None)
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**template["metadata"], "name": "pod"},
        "spec": {**spec, "serviceAccountName": "pods", "automountServiceAccountToken": False},
    }
    try:
        path = f"/api/v1/namespaces/{world.namespace}/pods"
        await world.api._request("POST", path, query={"dryRun": "All"}, body=pod)
    except ApiError as error:
        if "violates PodSecurity" not in error.message:
            raise
        return error.message
    return ""


def templates(documents: Iterator[Json], settings: RenderSettings) -> Iterator[Json]:
    for document in documents:
        for manifest in render(validated(document), settings).objects:
            if "template" in manifest.get("spec", {}):
                yield manifest["spec"]["template"]


async def test_pods_of_the_examples_are_admitted(restricted: World) -> None:
    documents = (document for path in EXAMPLES for document in example_documents(path))
    for template in templates(documents, RenderSettings()):
        assert await verdict(restricted, template) == ""


async def test_the_pod_of_a_batch_is_admitted(restricted: World) -> None:
    (document,) = (d for d in yaml.safe_load_all(BATCH_EXAMPLE.read_text()) if d["kind"] == "PDBatch")
    *_, job = render_batch(PDBatch.model_validate(document), Service("http://a", "a"), RenderSettings())
    template = job["spec"]["template"]
    assert list(restricted_problems(template)) == []
    assert await verdict(restricted, template) == ""


async def test_pods_of_every_field_with_side_cars_are_as_our_checker_says(restricted: World) -> None:
    """What the installation allows beyond the standard, folders of the node and IPC_LOCK, both refuse."""
    more = {"containers": [{"name": "s", "image": "s:1"}], "initContainers": [{"name": "i", "image": "i:1"}]}
    seen = set()
    for name, spec in yaml.safe_load(EVERY_FIELD.read_text(encoding="utf-8")).items():
        for role in ("parameter", "decode", "router"):
            spec.setdefault(role, {})["podTemplate"] = {"spec": more}
        document = {**restricted.resource("llama"), "spec": spec}
        for template in templates(iter([document]), RenderSettings(policy=FOR_EVERY_FIELD)):
            found = [problem.message for problem in restricted_problems(template)]
            assert bool(found) == bool(await verdict(restricted, template)), (name, found)
            assert all("type of volume" in message or "IPC_LOCK" in message for message in found), found
            seen.add(bool(found))
    assert seen == {True, False}


async def test_legitimate_overlays_are_admitted(restricted: World) -> None:
    for name, overlay in LEGITIMATE.items():
        role = "router" if name.startswith("router") else "decode"
        document = restricted.resource("llama", **{role: {"podTemplate": overlay}})
        for template in templates(iter([document]), RenderSettings()):
            assert await verdict(restricted, template) == "", name


async def test_bad_pods_are_refused_by_both(restricted: World) -> None:
    for name, change in BAD.items():
        pod = deepcopy(GOOD)
        change(pod)
        assert list(restricted_problems(pod)), name
        assert await verdict(restricted, pod), name


async def test_good_pods_are_admitted_by_both(restricted: World) -> None:
    for name, change in ALSO_GOOD.items():
        pod = deepcopy(GOOD)
        change(pod)
        assert list(restricted_problems(pod)) == [], name
        assert await verdict(restricted, pod) == "", name
