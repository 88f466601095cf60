"""The chart's policies on a real API server limit the operator's token to the operator's own writes."""

import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from pdinference.api.v1alpha1 import PDInference
from pdinference.checks import examine
from pdinference.cluster.client import ApiServer, load_configuration
from pdinference.cluster.errors import ApiError
from pdinference.cluster.kinds import CONFIG_MAP
from pdinference.loadmetrics.metrics_api.registration import API_SERVICE
from pdinference.manifests import RenderSettings, render
from pdinference.runtime.leader import LEASE_NAME
from tests.charts.helm import BATCH_CONFIG_MAPS, NAMESPACE, RELEASE, Object, only
from tests.conftest import allowing
from tests.hostile.pod_templates import LEGITIMATE
from tests.integration.kubernetes import ACCOUNT, ELSEWHERE, Kubernetes
from tests.waiting import wait_until

AS_OPERATOR = (f"--as={ACCOUNT}", "--field-manager=pdinference-operator")
HOST_PATHS = [{"path": "/srv/models"}]
CAPABILITIES = ["NET_BIND_SERVICE", "IPC_LOCK"]
Edit = Callable[[Object], Any]


@pytest.fixture(scope="module")
def installed(kubernetes: Kubernetes) -> Iterator[Kubernetes]:
    """One installation for all tests: its policies take seconds to be enforced."""
    with kubernetes.installed():
        yield kubernetes


@pytest.fixture(scope="module")
def guarded(installed: Kubernetes) -> Iterator[Kubernetes]:
    """The chart with all optional rights, once the API server enforces its policies."""
    values = {
        **BATCH_CONFIG_MAPS,
        "allowedHostPaths": HOST_PATHS,
        "policy": {"capabilities": CAPABILITIES},
        "admissionPolicy": {"protectedNamespaces": [ELSEWHERE]},
    }
    installed.helm("upgrade", values)
    # The API server looks roles up before it asks its policies.
    readers = [
        _reader("Role", "llama-router", "models"),
        _reader("Role", "other", "models"),
        _reader("ClusterRole", "other"),
    ]
    installed.apply(readers)
    probes = [
        (account(namespace=ELSEWHERE), "chart value admissionPolicy.protectedNamespaces"),
        (account(owned=False), "belongs to no PDInference"),
        (role([{"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get"]}]), "may grant reading pods"),
        (binding(subject="other"), "may bind a Role of a name"),
        (child("Service", "v1", spec={"externalIPs": ["1.2.3.4"], "ports": [{"port": 80}]}), "externalIPs"),
        (job(hostNetwork=True), "ports of its node"),
    ]
    deadline = time.monotonic() + 60
    for item, words in probes:
        while words not in refusal(installed, item):
            assert time.monotonic() < deadline, f"no policy says: {words}"
            time.sleep(0.2)
    yield installed
    installed.kubectl("delete", "--filename=-", objects=readers)


def _reader(kind: str, name: str, namespace: str = "") -> Object:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": metadata, "rules": [POD_READER]}


def refusal(kubernetes: Kubernetes, *objects: Object) -> str:
    """The rejection of a request of the operator's account; empty if it is allowed."""
    try:
        kubernetes.apply(list(objects), "--dry-run=server", "--force-conflicts", *AS_OPERATOR)
    except AssertionError as error:
        return str(error)
    return ""


def refused(kubernetes: Kubernetes, *command: str) -> str:
    try:
        kubernetes.kubectl(*command, f"--as={ACCOUNT}")
    except AssertionError as error:
        return str(error)
    return ""


def child(
    kind: str,
    version: str,
    *,
    name: str = "llama-router",
    namespace: str = "models",
    owned: bool = True,
    **content: Any,
) -> Object:
    owner = {"apiVersion": "pdinference.io/v1alpha1", "kind": "PDInference", "name": "llama", "uid": "0"}
    metadata: Object = {"name": name, "namespace": namespace}
    if owned:
        metadata["ownerReferences"] = [owner]
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **content}


def account(**place: Any) -> Object:
    return child("ServiceAccount", "v1", **place)


def role(rules: list[Object]) -> Object:
    return child("Role", "rbac.authorization.k8s.io/v1", name="llama-model", rules=rules)


def binding(kind: str = "Role", name: str = "llama-router", **subject: str) -> Object:
    given = {"kind": "ServiceAccount", "name": subject.get("subject", "llama-router"), "namespace": "models"}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}
    return child(
        "RoleBinding",
        "rbac.authorization.k8s.io/v1",
        roleRef=reference,
        subjects=[{**given, **{key: value for key, value in subject.items() if key != "subject"}}],
    )


def job(container: Object | None = None, context: Object | None = None, **pod: Any) -> Object:
    restricted = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        **(context or {}),
    }
    spec = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [{"name": "x", "image": "x:1", "securityContext": restricted, **(container or {})}],
        **pod,
    }
    return child("Job", "batch/v1", spec={"template": {"spec": spec}})


def host_path(path: str) -> Object:
    return job(volumes=[{"name": "host", "hostPath": {"path": path}}])


TOKEN = [{"serviceAccountToken": {"path": "token"}}]
POD_READER = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}


def history_entry(**place: Any) -> Object:
    return child("ControllerRevision", "apps/v1", name="llama-0", revision=1, data={"spec": {}}, **place)


REFUSED: list[tuple[Object, str]] = [
    *(
        (account(namespace=namespace), f"may write nothing in the namespace {namespace}")
        for namespace in ("kube-system", "kube-public", "kube-node-lease", ELSEWHERE)
    ),
    (account(namespace=NAMESPACE), f"serves nothing in its own namespace {NAMESPACE}"),
    (account(owned=False), "belongs to no PDInference and no PDBatch"),
    (history_entry(owned=False), "belongs to no PDInference and no PDBatch"),
    (binding("ClusterRole", "other"), "may bind a Role of a name"),
    (binding(name="other"), "may bind a Role of a name"),
    (binding(subject="default"), "may bind a Role of a name"),
    (binding(namespace="default"), "may bind a Role of a name"),
    *(
        (role([POD_READER, rule]), "may grant reading pods")
        for rule in (
            {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["create"]},
            {"apiGroups": [""], "resources": ["pods", "services"], "verbs": ["list"]},
            {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["patch"]},
            {"apiGroups": ["batch"], "resources": ["jobs"], "resourceNames": ["a", "b"], "verbs": ["patch"]},
            {"apiGroups": ["batch"], "resources": ["jobs"], "resourceNames": ["a"], "verbs": ["patch", "delete"]},
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["patch"]},
        )
    ),
    *((job(None, None, **{member: True}), "of its node") for member in ("hostNetwork", "hostPID", "hostIPC")),
    (job({"ports": [{"containerPort": 80, "hostPort": 80}]}), "of its node"),
    *(
        (job(context=context), "privileged or runs as root")
        for context in (
            {"privileged": True, "allowPrivilegeEscalation": True},
            {"allowPrivilegeEscalation": True},
            {"runAsUser": 0},
            {"runAsNonRoot": False},
            {"capabilities": {"add": ["SYS_ADMIN"]}},
            {"seccompProfile": {"type": "Unconfined"}},
        )
    ),
    (job(securityContext={}), "privileged or runs as root"),
    (job(securityContext={"runAsNonRoot": True, "runAsUser": 0}), "privileged or runs as root"),
    (
        job(initContainers=[{"name": "i", "image": "i", "securityContext": {"privileged": True}}]),
        "privileged or runs as root",
    ),
    *((host_path(path), "allowedHostPaths") for path in ("/", "/etc", "/srv/models-b", "/srv")),
    (job(serviceAccountName="default-admin"), "under no account but"),
    (job(serviceAccountName="llama"), "under no account but"),
    (job(automountServiceAccountToken=True), "no token but"),
    (job(volumes=[{"name": "t", "projected": {"sources": TOKEN}}]), "no token but"),
    (child("Service", "v1", spec={"type": "ExternalName", "externalName": "x.example"}), "ExternalName"),
    (child("Service", "v1", spec={"externalIPs": ["1.2.3.4"], "ports": [{"port": 80}]}), "externalIPs"),
]
ALLOWED = [
    account(),
    history_entry(),
    role([POD_READER, {"apiGroups": ["batch"], "resources": ["jobs"], "resourceNames": ["a"], "verbs": ["patch"]}]),
    job(),
    job(serviceAccountName="llama-router", volumes=[{"name": "t", "projected": {"sources": TOKEN}}]),
    *(job(context={"capabilities": {"drop": ["ALL"], "add": [name]}}) for name in CAPABILITIES),
    child("Service", "v1", spec={"type": "LoadBalancer", "ports": [{"port": 80}]}),
]


def test_what_the_operator_never_does_is_refused_and_what_it_does_is_not(guarded: Kubernetes) -> None:
    wrong = {str(item): said for item, words in REFUSED if words not in (said := refusal(guarded, item))}
    assert wrong == {}
    for item in ALLOWED:
        assert "ValidatingAdmissionPolicy" not in refusal(guarded, item), item
    # Not in the namespace `models`, whose Pod Security admission only warns of Jobs.
    assert "ValidatingAdmissionPolicy" not in refusal(guarded, host_path("/srv/models/llama"))


def test_it_evicts_pods_of_p_and_d_in_namespaces_that_it_serves(guarded: Kubernetes) -> None:
    def said(namespace: str, pod: str) -> str:
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": namespace}}
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction"
        try:
            guarded.kubectl("create", f"--raw={path}", "--filename=-", f"--as={ACCOUNT}", objects=[body])
        except AssertionError as error:
            return str(error)
        return ""

    assert "NotFound" in said("models", "llama-parameter-abc-0")
    assert "NotFound" in said("models", "llama-decode-abc-x")
    assert "may evict pods of P and D alone" in said("models", "shop-0")
    assert "chart value admissionPolicy.protectedNamespaces" in said(ELSEWHERE, "llama-parameter-abc-0")


@pytest.mark.parametrize("model", [{"path": "/m"}, {"hostPath": {"path": "/srv/models/a..b"}}])
def test_what_the_checks_accept_is_accepted(guarded: Kubernetes, model: Object) -> None:
    """Each legitimate overlay of the tests of the checks, as the operator would apply its workloads."""
    settings = RenderSettings(policy=allowing("/srv/models", capabilities=CAPABILITIES))
    add = {"capabilities": {"add": CAPABILITIES}}
    overlays = {**LEGITIMATE, "capabilities": {"spec": {"containers": [{"name": "vllm", "securityContext": add}]}}}
    wrong = {}
    for name, overlay in overlays.items():
        roles = ("router",) if name.startswith("router") else ("parameter", "decode")
        spec = {"model": {"source": model}, **{role: {"podTemplate": overlay} for role in roles}}
        document = {"apiVersion": "pdinference.io/v1alpha1", "kind": "PDInference", "spec": spec,
                    "metadata": {"name": "llama", "namespace": "models", "uid": "0"}}  # fmt: skip
        found = examine(document, settings)
        assert found.resource is not None, (name, found.problems)
        workloads = [item for item in render(found.resource, settings).objects if "template" in item.get("spec", {})]
        said = refusal(guarded, *workloads)
        if "ValidatingAdmissionPolicy" in said or "is invalid" in said:
            wrong[name] = said
    assert wrong == {}


def test_it_does_its_work_and_leaves_others_objects_alone(guarded: Kubernetes, resource: PDInference) -> None:
    children = list(render(resource, RenderSettings()).objects)
    guarded.apply(children, *AS_OPERATOR)
    router = only(children, "Deployment", ending="-router")["metadata"]["name"]
    here = "--namespace=models"
    scale = '--patch={"spec": {"replicas": 0}}'
    guarded.kubectl("patch", "deployment", router, here, scale, f"--as={ACCOUNT}")
    stranger = deepcopy(only(children, "Deployment", ending="-router"))
    stranger["metadata"] = {"name": "shop", "namespace": "models"}
    stranger["spec"]["template"]["spec"] |= {"serviceAccountName": "default", "automountServiceAccountToken": False}
    guarded.apply([stranger])
    ours = "may change and delete nothing that belongs to no PDInference"
    try:
        assert ours in refused(guarded, "patch", "deployment", "shop", here, scale)
        assert ours in refused(guarded, "delete", "deployment", "shop", here)
        owner = child("Deployment", "apps/v1")["metadata"]["ownerReferences"]
        stolen = {**stranger, "metadata": {**stranger["metadata"], "ownerReferences": owner}}
        assert ours in refusal(guarded, stolen)
    finally:
        guarded.kubectl("delete", "deployment/shop", here)
    guarded.kubectl("delete", "deployment", router, here, f"--as={ACCOUNT}")


async def test_of_others_configmaps_it_sees_whose_they_are(guarded: Kubernetes, tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(guarded.as_account()), encoding="utf-8")
    metadata = {"name": "precious", "namespace": "models"}
    guarded.apply([{"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "b"}}])
    api = ApiServer(await load_configuration(kubeconfig))
    path = CONFIG_MAP.path("models", "precious")
    try:
        # As `ensure_output` does it, with the right to patch alone.
        assert (await api.merge(path, {}))["metadata"]["name"] == "precious"
        for patch in ({"data": {"a": "c"}}, {"metadata": {"labels": {"a": "b"}}}):
            with pytest.raises(ApiError, match="may change and delete nothing that belongs to no PDInference"):
                await api.merge(path, patch)
    finally:
        await api.close()
        guarded.kubectl("delete", "configmap", "precious", "--namespace=models")


def test_of_its_own_namespace_it_writes_its_lease_and_certificate_alone(guarded: Kubernetes) -> None:
    here = f"--namespace={NAMESPACE}"
    for what in (f"deployment/{RELEASE}", f"serviceaccount/{RELEASE}", f"service/{RELEASE}-tls"):
        assert "ValidatingAdmissionPolicy" in refused(guarded, "delete", what, here), what
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": {}}
    for name, words in ((LEASE_NAME, ""), ("other", "no Lease and no Secret but its own")):
        metadata = {"name": name, "namespace": NAMESPACE}
        try:
            guarded.kubectl(
                "create",
                "--filename=-",
                "--dry-run=server",
                f"--as={ACCOUNT}",
                objects=[{**lease, "metadata": metadata}],
            )
            said = ""
        except AssertionError as error:
            said = str(error)
        assert words in said
        assert bool(said) is bool(words)
    secret = guarded.get("secret", f"{RELEASE}-tls", here)
    guarded.kubectl("replace", "--filename=-", "--dry-run=server", f"--as={ACCOUNT}", objects=[secret])


def test_of_the_metrics_api_it_changes_the_ca_bundle_alone(guarded: Kubernetes) -> None:
    bundle = '--patch={"spec": {"caBundle": "eA=="}}'
    assert refused(guarded, "patch", "apiservice", API_SERVICE, "--type=merge", "--dry-run=server", bundle) == ""
    elsewhere = '--patch={"spec": {"service": {"namespace": "models", "name": "evil"}}}'
    said = refused(guarded, "patch", "apiservice", API_SERVICE, "--type=merge", elsewhere)
    assert "nothing of the APIService but its CA bundle" in said


def test_people_are_not_held_to_it(guarded: Kubernetes) -> None:
    guarded.apply([account(namespace="kube-system", owned=False)], "--dry-run=server")


def test_the_installation_may_allow_p_and_d_to_be_root_and_no_more(guarded: Kubernetes) -> None:
    """The last test of this file: it leaves the policies so."""
    root = {"runAsNonRoot": False, "runAsUser": 0}
    of_d, other, privileged = (
        job(context=root),
        job(context=root),
        job(context={"privileged": True, "allowPrivilegeEscalation": True}),
    )
    for item in (of_d, privileged):
        item["spec"]["template"]["metadata"] = {"labels": {"pdinference.io/role": "decode"}}
    assert "may start no container that is privileged or runs as root" in refusal(guarded, of_d)
    guarded.helm("upgrade", {"policy": {"root": True}})
    # A warning of Kubernetes' own Pod Security remains.
    wait_until(lambda: "ValidatingAdmissionPolicy" not in refusal(guarded, of_d), "root to be allowed")
    for item in (other, privileged):
        assert "may start no container that is privileged or runs as root" in refusal(guarded, item)
