"""The chart on a real API server: every object is accepted, and the operator's account may do its work and no more."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path

import pytest
import yaml

from pdinference.api.v1alpha1 import PDBatch, PDInference
from pdinference.cluster import kinds
from pdinference.engine.batch import ServiceAccess
from pdinference.loadmetrics.metrics_api.registration import API_SERVICE
from pdinference.manifests import RenderSettings, render
from pdinference.manifests.batch import render_batch, render_output
from tests.charts.helm import (
    BATCH_CONFIG_MAPS,
    EVERYTHING,
    KEDA,
    NAMESPACE,
    NAMESPACED,
    RELEASE,
    WITHOUT_EXTRAS,
    HelmError,
    Object,
    Values,
    arguments_here,
    only,
    rendered,
)
from tests.conftest import BATCH_EXAMPLE
from tests.integration.kubernetes import ACCOUNT, ELSEWHERE, Kubernetes
from tests.waiting import LONG_S

CRD = "customresourcedefinition/pdinferences.pdinference.io"


NEEDED = [
    *product(["pdinference.io"], ["pdinferences", "pdbatches"], ["list", "watch"]),
    *product(["pdinference.io"], ["pdinferences/status", "pdbatches/status", "pdscalers/status"], ["patch"]),
    *product(["pdinference.io"], ["pdinferences/finalizers", "pdbatches/finalizers"], ["update"]),
    *product([""], ["pods"], ["list", "watch"]),
    *product(["events.k8s.io"], ["events"], ["create", "patch"]),
    *(
        (kind.group, kind.plural, verb)
        for kind in kinds.OWNED
        for verb in ("get", "list", "watch", "create", "patch", "delete")
    ),
]
FORBIDDEN = [
    *product([""], ["secrets"], ["get", "list", "watch", "create", "update", "patch", "delete"]),
    ("", "configmaps", "update"),
    *product([""], ["pods"], ["get", "create", "patch", "delete"]),
    ("", "pods/exec", "create"),
    ("", "serviceaccounts/token", "create"),
    ("", "serviceaccounts", "impersonate"),
    ("", "nodes", "list"),
    ("", "namespaces", "list"),
    *product(["pdinference.io"], ["pdinferences", "pdbatches"], ["create", "update", "patch", "delete"]),
    *product(["rbac.authorization.k8s.io"], ["roles", "clusterroles"], ["escalate", "bind"]),
    ("rbac.authorization.k8s.io", "clusterrolebindings", "create"),
    ("apiextensions.k8s.io", "customresourcedefinitions", "patch"),
]


@pytest.mark.parametrize(
    "values",
    [{}, NAMESPACED, EVERYTHING, WITHOUT_EXTRAS],
    ids=["default", "namespaced", "everything", "without-extras"],
)
def test_the_api_server_accepts_every_object(kubernetes: Kubernetes, values: Values) -> None:
    kubernetes.apply(rendered(values), "--dry-run=server")


def test_the_pod_is_admitted_to_a_restricted_namespace(installed: Kubernetes) -> None:
    template = only(rendered(), "Deployment")["spec"]["template"]
    metadata = {"name": "operator", "namespace": NAMESPACE, **template["metadata"]}
    installed.apply([{"apiVersion": "v1", "kind": "Pod", **template, "metadata": metadata}], "--dry-run=server")


class TestRights:
    """Of the default values; the tests share an installation."""

    @pytest.fixture(scope="class")
    @classmethod
    def installed(cls, kubernetes: Kubernetes) -> Iterator[Kubernetes]:
        with kubernetes.installed():
            yield kubernetes

    def test_the_operator_may_do_its_work_everywhere(self, installed: Kubernetes) -> None:
        for namespace in ("models", ELSEWHERE):
            assert denied(installed, namespace, NEEDED) == []

    def test_and_nothing_else(self, installed: Kubernetes) -> None:
        assert permitted(installed, "models", FORBIDDEN) == []
        assert permitted(installed, NAMESPACE, FORBIDDEN) == []

    def test_it_may_hold_its_own_lease_and_no_other(self, installed: Kubernetes) -> None:
        leases = [("coordination.k8s.io", "leases", verb) for verb in ("get", "update")]
        assert installed.allowed(NAMESPACE, [("coordination.k8s.io", "leases", "create")]) == [True]
        assert installed.allowed(NAMESPACE, leases, name="pdinference-operator") == [True, True]
        assert installed.allowed(NAMESPACE, leases, name="other") == [False, False]
        assert installed.allowed("kube-system", leases, name="pdinference-operator") == [False, False]

    def test_of_secrets_and_webhooks_it_may_touch_its_own_only(self, installed: Kubernetes) -> None:
        secret = [("", "secrets", verb) for verb in ("get", "update")]
        webhook = [
            ("admissionregistration.k8s.io", f"{kind}webhookconfigurations", verb)
            for kind, verb in product(("validating", "mutating"), ("get", "patch"))
        ]
        assert installed.allowed(NAMESPACE, secret, name=f"{RELEASE}-tls") == [True, True]
        assert installed.allowed(NAMESPACE, secret, name="other") == [False, False]
        assert installed.allowed("models", secret, name=f"{RELEASE}-tls") == [False, False]
        assert installed.allowed("", webhook, name=f"{RELEASE}.{NAMESPACE}") == [True] * 4
        assert installed.allowed("", webhook, name="other") == [False] * 4

    def test_it_really_can_apply_all_children(self, installed: Kubernetes, resource: PDInference) -> None:
        """Among them a Role: the API server lets nobody write one with rights that he has not himself."""
        children = list(render(resource, RenderSettings()).objects)
        installed.apply(children, f"--as={ACCOUNT}", "--field-manager=pdinference-operator")
        role = only(children, "Role")
        assert installed.exists("role", role["metadata"]["name"], "--namespace=models")

    def test_it_cannot_give_away_secrets(self, installed: Kubernetes) -> None:
        rules = [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]
        role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "rules": rules}
        metadata = {"name": "greedy", "namespace": "models"}
        with pytest.raises(AssertionError, match="attempting to grant RBAC permissions not currently held"):
            installed.apply([{**role, "metadata": metadata}], f"--as={ACCOUNT}")

    def test_people_with_the_role_edit_may_use_the_resource(self, installed: Kubernetes) -> None:
        binding = "--clusterrole=edit --user=jane --namespace=models --dry-run=client -o=json"
        installed.apply([json.loads(installed.kubectl("create", "rolebinding", "jane", *binding.split()))])
        assert installed.kubectl("auth", "can-i", "create", "pdi", "--as=jane", "--namespace=models") == "yes\n"
        assert installed.kubectl("auth", "can-i", "get", "pdi", "--as=jane", "--namespace=models") == "yes\n"


class TestRightsOfOtherValues:
    @pytest.mark.parametrize("output", [None, {"configMap": {"name": "answers"}}], ids=["claim", "configmap"])
    def test_it_can_apply_what_a_batch_becomes_and_the_pod_is_admitted(
        self, installed: Kubernetes, output: Object | None
    ) -> None:
        (document,) = [d for d in yaml.safe_load_all(BATCH_EXAMPLE.read_text()) if d["kind"] == "PDBatch"]
        document["metadata"]["namespace"] = "models"
        if output is not None:
            installed.helm("upgrade", BATCH_CONFIG_MAPS)
            # The Job of the other one may still be going away.
            document["metadata"]["name"] += "-kept"
            document["spec"]["output"] = output
        installed.apply([document])
        batch = PDBatch.model_validate(installed.get("pdib", document["metadata"]["name"], "--namespace=models"))
        children = list(render_batch(batch, ServiceAccess("http://llama.models.svc", "llama"), RenderSettings()))
        if config_map := render_output(batch):
            installed.apply([config_map], f"--as={ACCOUNT}", "--field-manager=pdinference-operator")
        installed.apply(children, f"--as={ACCOUNT}", "--field-manager=pdinference-operator")
        job = only(children, "Job")
        metadata = {**job["spec"]["template"]["metadata"], "name": "runner", "namespace": "models"}
        pod = {"apiVersion": "v1", "kind": "Pod", **job["spec"]["template"], "metadata": metadata}
        installed.apply([pod], "--dry-run=server")
        installed.kubectl("delete", "pdib", batch.metadata.name, "--namespace=models")

    def test_with_listed_namespaces_it_may_do_its_work_there_only(self, installed: Kubernetes) -> None:
        installed.helm("upgrade", NAMESPACED)
        for namespace in ("models", "research"):
            assert denied(installed, namespace, NEEDED) == []
            assert permitted(installed, namespace, FORBIDDEN) == []
        for namespace in (ELSEWHERE, "kube-system", ""):
            assert permitted(installed, namespace, NEEDED) == []


class TestOperator:
    """The operator itself, on the host, with the arguments of the chart's Deployment and its account's token."""

    @pytest.mark.parametrize("values", [{}, NAMESPACED, KEDA], ids=["cluster-wide", "namespaced", "keda"])
    def test_nothing_that_it_asks_for_is_refused(
        self, installed: Kubernetes, resource: PDInference, values: Values, tmp_path: Path
    ) -> None:
        name = resource.metadata.name
        installed.helm("upgrade", values)
        with operator(installed, values, tmp_path) as process:
            wait_for(process, lambda: installed.get("pdi", name, "-n=models").get("status"), "a status")
            wait_for(process, lambda: installed.get("events.events.k8s.io", "-n=models")["items"], "an Event")
            wait_for(process, lambda: installed.exists("service", name, "-n=models"), "the Service")
            installed.kubectl("delete", "service", name, "-n=models")
            wait_for(process, lambda: installed.exists("service", name, "-n=models"), "the Service again")
        assert installed.exists("statefulset", "--namespace=models", "--selector=app.kubernetes.io/name=pdinference")
        assert installed.exists("lease", "pdinference-operator", "--namespace", NAMESPACE)
        assert installed.refusals(ACCOUNT) == []

    def test_explain_knows_the_settings_of_the_installation(
        self, installed: Kubernetes, resource: PDInference, tmp_path: Path
    ) -> None:
        """With the defaults, it would name writes of another router image that the operator does not make."""
        values: Values = {"router": {"image": {"repository": "registry.example/router"}}, "policy": {"labels": ["*"]}}
        installed.helm("upgrade", values)
        name = resource.metadata.name
        with operator(installed, values, tmp_path) as process:
            wait_for(
                process,
                lambda: "Nothing to do." in installed.pdinference("explain", name, "--namespace=models"),
                "rest",
            )
        router = installed.get("deployment", f"{name}-router", "-n=models")
        assert "registry.example/router" in json.dumps(router["spec"])
        given = installed.pdinference("explain", name, "--namespace=models", "--router-image=other:1")
        assert "the manifest changed" in given
        assert "They are those of the options" in given.replace("\n", " ")


@contextmanager
def operator(kubernetes: Kubernetes, values: Values, folder: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Run it until the end of the block; it must stop in good order."""
    arguments = arguments_here(rendered(values), folder)
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(kubernetes.as_account()), encoding="utf-8")
    log = folder / "log"
    line = [str(Path(sys.executable).parent / "pdinference"), *arguments, "--health-port=0", "--tls-port=0"]
    with (
        log.open("wb") as output,
        subprocess.Popen(line, env={**os.environ, "KUBECONFIG": str(kubeconfig)}, stderr=output) as process,
    ):
        try:
            yield process
        finally:
            process.terminate()
            status = process.wait(timeout=LONG_S)
            print(log.read_text(encoding="utf-8"))  # noqa: T201 - pytest shows it when the test fails
    assert status == 0


def wait_for(process: "subprocess.Popen[bytes]", met: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + 60
    while not met():
        assert process.poll() is None, "the operator ended"
        assert time.monotonic() < deadline, f"no sign of {what} after a minute"
        time.sleep(0.5)


class TestLifecycle:
    def test_models_outlive_the_chart_and_are_there_when_it_returns(
        self, installed: Kubernetes, resource: PDInference
    ) -> None:
        installed.uninstall()
        assert not installed.exists("clusterrole", RELEASE)
        assert not installed.exists("deployment", "--namespace", NAMESPACE, RELEASE)
        installed.helm("install")
        found = installed.get("pdi", resource.metadata.name, "--namespace=models")
        assert found["metadata"]["uid"] == resource.metadata.uid

    def test_another_server_of_external_metrics_keeps_the_group(self, kubernetes: Kubernetes) -> None:
        """KEDA's, say: Helm takes it from nobody, and without metricsApi there is nothing to take."""
        service = {"namespace": ELSEWHERE, "name": "keda-operator-metrics-apiserver", "port": 443}
        spec = {"group": "external.metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100}
        foreign = {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": API_SERVICE},
            "spec": {**spec, "versionPriority": 100, "service": service, "insecureSkipTLSVerify": True},
        }
        kubernetes.apply([foreign])
        try:
            with pytest.raises(HelmError, match="cannot be imported into the current release"):
                kubernetes.helm("install")
            kubernetes.helm("install", {**KEDA, "metricsApi": {"enabled": False}})
            kubernetes.uninstall()
            assert kubernetes.get("apiservice", API_SERVICE)["spec"]["service"] == service
        finally:
            kubernetes.kubectl("delete", "apiservice", API_SERVICE)

    def test_an_upgrade_upgrades_the_definition(self, installed: Kubernetes) -> None:
        installed.kubectl("patch", CRD, "--type=json", '--patch=[{"op": "remove", "path": "/spec/names/shortNames"}]')
        installed.helm("upgrade", {"crds": {"annotations": {"example.com/reviewed": "yes"}}})
        definition = installed.get(CRD)
        assert definition["spec"]["names"]["shortNames"] == ["pdi"]
        assert definition["metadata"]["annotations"]["example.com/reviewed"] == "yes"

    def test_an_upgrade_installs_a_definition_that_is_missing(self, installed: Kubernetes) -> None:
        """As from a release of the chart that did not have it."""
        installed.kubectl("delete", "customresourcedefinition/pdscalers.pdinference.io")
        installed.helm("upgrade")
        assert installed.get("pdscalers", "--namespace=models")["items"] == []

    def test_an_upgrade_leaves_what_the_operator_filled_in(self, installed: Kubernetes, tmp_path: Path) -> None:
        names = (
            ("secret", f"{RELEASE}-tls", "-n", NAMESPACE),
            ("validatingwebhookconfiguration", f"{RELEASE}.{NAMESPACE}"),
            ("mutatingwebhookconfiguration", f"{RELEASE}.{NAMESPACE}"),
        )

        def complete() -> bool:
            return all("rules" in installed.get(*name)["webhooks"][0] for name in names[1:])

        with operator(installed, {}, tmp_path) as process:
            wait_for(process, complete, "the webhooks' rules")
        secret, *configurations = (installed.get(*name) for name in names)
        installed.helm("upgrade", {"webhook": {"timeoutSeconds": 7}})
        secret_after, *configurations_after = (installed.get(*name) for name in names)
        assert secret_after["data"] == secret["data"]
        for before, after in zip(configurations, configurations_after, strict=True):
            assert after["webhooks"][0]["timeoutSeconds"] == 7
            for member in ("rules", "clientConfig"):
                assert after["webhooks"][0][member] == before["webhooks"][0][member]
            assert after["webhooks"][0]["clientConfig"]["caBundle"]

    def test_an_upgrade_without_changes_leaves_the_pods_alone(self, installed: Kubernetes) -> None:
        before = installed.get("deployment", RELEASE, "--namespace", NAMESPACE)["metadata"]["generation"]
        installed.helm("upgrade")
        after = installed.get("deployment", RELEASE, "--namespace", NAMESPACE)["metadata"]["generation"]
        assert after == before

    def test_the_notes_name_what_was_installed(self, kubernetes: Kubernetes) -> None:
        try:
            assert f"rollout status deployment/{RELEASE}" in kubernetes.helm("install")
        finally:
            kubernetes.uninstall()

    def test_a_namespace_that_is_not_there_is_named(self, kubernetes: Kubernetes) -> None:
        with pytest.raises(HelmError, match='namespaces "nowhere" not found'):
            kubernetes.helm("install", {"watchNamespaces": ["nowhere"]})
        kubernetes.uninstall()


def denied(kubernetes: Kubernetes, namespace: str, rights: list[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    answers = kubernetes.allowed(namespace, rights)
    return [right for right, allowed in zip(rights, answers, strict=True) if not allowed]


def permitted(kubernetes: Kubernetes, namespace: str, rights: list[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    answers = kubernetes.allowed(namespace, rights)
    return [right for right, allowed in zip(rights, answers, strict=True) if allowed]
