"""The objects of the chart."""

import json
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import click
import pytest
import yaml

from e2e import charts
from e2e.cluster.build import binary
from pdinference.admission import webhook
from pdinference.api import names
from pdinference.api.installation_policy import Policy
from pdinference.api.validation import validated
from pdinference.cli import main
from pdinference.cli.lazy_group import subcommands
from pdinference.loadmetrics.metrics_api.group import GROUP, VERSION
from pdinference.loadmetrics.metrics_api.registration import API_SERVICE
from pdinference.manifests.pods.pod_security import restricted_problems
from pdinference.planning.scaling.gauges import adapter_rules
from tests.charts.helm import (
    CERT_MANAGER,
    CHART,
    CLIENT_CERTIFICATE,
    EVERYTHING,
    NAMESPACE,
    NAMESPACED,
    OWN_CLIENT_CA,
    RELEASE,
    VALUE_SETS,
    WITH_MONITOR,
    WITH_PROMETHEUS,
    WITHOUT_EXTRAS,
    HelmError,
    Object,
    Values,
    arguments_here,
    helm,
    of_kind,
    only,
    rendered,
    rendered_test,
)
from tests.conftest import REPOSITORY

NUMBER = charts.version()
KEDA = {"enabled": True, "prometheus": "http://prometheus.monitoring:9090"}
POLICY_ANNOTATION = "pdinference.io/policy"
CRDS = sorted((Path(__file__).parents[2] / "crds").glob("*.yaml"))

all_value_sets = pytest.mark.parametrize("values", VALUE_SETS.values(), ids=VALUE_SETS.keys())
tested_value_sets = pytest.mark.parametrize(
    "values", [pytest.param(values, id=name) for name, values in VALUE_SETS.items() if values is not WITHOUT_EXTRAS]
)


def pod(objects: list[Object]) -> Object:
    template: Object = only(objects, "Deployment")["spec"]["template"]
    return template


def container(objects: list[Object]) -> Object:
    (found,) = pod(objects)["spec"]["containers"]
    result: Object = found
    return result


class TestDefinition:
    def test_the_copies_in_the_chart_are_the_generated_files(self) -> None:
        copies = {path.name: path.read_bytes() for path in (CHART / "files" / "crds").iterdir()}
        assert copies == {path.name: path.read_bytes() for path in CRDS}, "run: make generate"

    def test_rendering_changes_nothing_but_metadata(self) -> None:
        definitions = {d["metadata"]["name"]: d["spec"] for d in of_kind(rendered(), "CustomResourceDefinition")}
        generated = [yaml.load(path.read_text(encoding="utf-8"), yaml.CSafeLoader) for path in CRDS]
        assert definitions == {crd["metadata"]["name"]: crd["spec"] for crd in generated}

    def test_they_outlive_the_chart_unless_told_otherwise(self) -> None:
        keep = {"helm.sh/resource-policy": "keep"}
        for definition in of_kind(rendered(), "CustomResourceDefinition"):
            assert definition["metadata"]["annotations"] == keep
        for definition in of_kind(rendered({"crds": {"keep": False}}), "CustomResourceDefinition"):
            assert "annotations" not in definition["metadata"]

    def test_it_can_be_left_out(self) -> None:
        assert not of_kind(rendered({"crds": {"install": False}}), "CustomResourceDefinition")


class TestPod:
    @all_value_sets
    def test_it_meets_the_restricted_pod_security_standard(self, values: Values) -> None:
        objects = rendered(values)
        spec = pod(objects)["spec"]
        context = container(objects)["securityContext"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["runAsUser"] == 65532
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert context == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        }
        assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
        assert list(restricted_problems(pod(objects))) == []

    def test_it_is_probed_and_sized(self) -> None:
        operator = container(rendered())
        assert operator["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "http"}
        assert operator["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}
        assert operator["resources"] == {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}}

    def test_images_are_those_of_this_version(self) -> None:
        operator = container(rendered())
        assert operator["image"] == names.DEFAULT_OPERATOR_IMAGE
        assert f"--router-image={names.DEFAULT_ROUTER_IMAGE}" in operator["args"]
        assert f"--model-image={names.DEFAULT_MODEL_IMAGE}" in operator["args"]

    def test_a_digest_replaces_the_tag(self) -> None:
        digest = "sha256:" + "0" * 64
        assert container(rendered(EVERYTHING))["image"] == f"registry.example:5000/team/operator@{digest}"

    def test_scheduling_values_reach_it_unchanged(self) -> None:
        spec = pod(rendered(EVERYTHING))["spec"]
        for name in ("priorityClassName", "nodeSelector", "tolerations", "affinity", "topologySpreadConstraints"):
            assert spec[name] == EVERYTHING[name]
        assert container(rendered(EVERYTHING))["env"] == EVERYTHING["extraEnv"]

    def test_no_value_breaks_out_of_its_place(self) -> None:
        hostile = "a: b # c\n- \"d\" 'e' {{ f }} ${g} é"
        objects = rendered(
            {
                "extraArgs": [hostile],
                "extraEnv": [{"name": "X", "value": hostile}],
                "podAnnotations": {"x": hostile, "y": "true", "z": "1e3"},
                "serviceAccount": {"annotations": {"x": hostile}},
            }
        )
        assert container(objects)["args"][-1] == hostile
        assert container(objects)["env"] == [{"name": "X", "value": hostile}]
        annotations = pod(objects)["metadata"]["annotations"]
        assert annotations == {"x": hostile, "y": "true", "z": "1e3", POLICY_ANNOTATION: annotations[POLICY_ANNOTATION]}
        assert only(objects, "ServiceAccount")["metadata"]["annotations"] == {"x": hostile}

    def test_labels_of_the_user_do_not_change_what_selectors_match(self) -> None:
        objects = rendered({"podLabels": {"app.kubernetes.io/name": "other", "team": "serving"}})
        selector = only(objects, "Deployment")["spec"]["selector"]["matchLabels"]
        assert selector.items() <= pod(objects)["metadata"]["labels"].items()
        assert pod(objects)["metadata"]["labels"]["team"] == "serving"


class TestArguments:
    @all_value_sets
    def test_the_operator_accepts_them(self, tmp_path: Path, values: Values) -> None:
        command = subcommands(main)["run"]
        subcommand, *arguments = arguments_here(rendered(values), tmp_path)
        assert subcommand == "run"
        command.make_context("run", list(arguments))

    def test_keda_is_told_how_to_use_its_secrets(self) -> None:
        keda = [argument for argument in container(rendered(WITH_PROMETHEUS))["args"] if "--keda-auth" in argument]
        assert keda == [
            "--keda-authentication=TriggerAuthentication/thanos",
            "--keda-auth-mode=tls",
            "--keda-auth-mode=bearer",
        ]

    def test_the_adapters_rule_reads_gauges_of_this_release_alone(self) -> None:
        found = only(rendered(WITH_PROMETHEUS), "ConfigMap", ending="-adapter-rules")
        assert found["metadata"]["namespace"] == "monitoring"
        assert yaml.safe_load(found["data"]["config.yaml"]) == adapter_rules(NAMESPACE)

    def test_they_say_what_the_values_say(self) -> None:
        assert container(rendered(EVERYTHING))["args"] == [
            "run",
            "--leader-elect",
            f"--lease-namespace={NAMESPACE}",
            "--workers=16",
            "--resync-seconds=3600",
            "--health-port=8080",
            "--tls-secret=pdi-tls",
            f"--tls-host=pdi-tls.{NAMESPACE}.svc",
            "--tls-port=8443",
            f"--webhook-configuration=pdi.{NAMESPACE}",
            f"--metrics-service={NAMESPACE}/pdi-tls",
            "--router-image=registry.example:5000/team/router:1.2.3",
            "--model-image=registry.example:5000/team/operator:1.2.2",
            f"--runner-image={container(rendered(EVERYTHING))['image']}",
            f"--operator-namespace={NAMESPACE}",
            f"--operator-label=app.kubernetes.io/instance={RELEASE}",
            "--operator-label=app.kubernetes.io/name=pdinference-operator",
            "--policy=/etc/pdinference/policy.yaml",
            "--log-format=plain",
            "--log-level=debug",
        ]

    def test_each_watched_namespace_is_named(self) -> None:
        arguments = container(rendered(NAMESPACED))["args"]
        assert [value for value in arguments if value.startswith("--namespace")] == [
            "--namespace=models",
            "--namespace=research",
        ]

    def test_big_numbers_stay_whole(self) -> None:
        assert "--resync-seconds=86400" in container(rendered({"resyncSeconds": 86400.0}))["args"]

    def test_an_unknown_extra_argument_would_be_noticed(self, tmp_path: Path) -> None:
        arguments = arguments_here(rendered({"extraArgs": ["--no-such-option"]}), tmp_path)[1:]
        with pytest.raises(click.UsageError):
            subcommands(main)["run"].make_context("run", list(arguments))


class TestReplicas:
    def test_one_needs_no_disruption_budget(self) -> None:
        assert not of_kind(rendered({"replicas": 1}), "PodDisruptionBudget")

    def test_several_are_drained_one_at_a_time(self) -> None:
        objects = rendered({"replicas": 2})
        assert only(objects, "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1
        assert not of_kind(rendered({"replicas": 2, "podDisruptionBudget": {"enabled": False}}), "PodDisruptionBudget")

    def test_without_leader_election_two_never_overlap(self) -> None:
        assert only(rendered(WITHOUT_EXTRAS), "Deployment")["spec"]["strategy"] == {"type": "Recreate"}


class TestMetricsApi:
    def test_the_api_server_is_led_to_the_pods(self) -> None:
        objects = rendered()
        called = only(objects, "APIService")["spec"]["service"]
        service = only(objects, "Service", ending="-tls")
        assert (called["name"], called["namespace"]) == (service["metadata"]["name"], service["metadata"]["namespace"])
        assert called["port"] == service["spec"]["ports"][0]["port"]
        assert f"--metrics-service={called['namespace']}/{called['name']}" in container(objects)["args"]

    def test_it_is_the_group_that_the_operator_serves(self) -> None:
        found = only(rendered(), "APIService")
        assert found["metadata"]["name"] == API_SERVICE
        assert (found["spec"]["group"], found["spec"]["version"]) == (GROUP, VERSION)
        assert "caBundle" not in found["spec"]

    def test_it_serves_without_a_webhook_too(self) -> None:
        objects = rendered({"webhook": {"enabled": False}})
        assert only(objects, "Secret")
        assert "--tls-port=8443" in container(objects)["args"]
        assert not [item for item in objects if item["kind"].endswith("WebhookConfiguration")]

    @pytest.mark.parametrize("values", [{"metricsApi": {"enabled": False}}, NAMESPACED])
    def test_it_can_be_left_out_and_is_for_whole_clusters_only(self, values: Values) -> None:
        objects = rendered(values)
        assert not of_kind(objects, "APIService")
        assert not [argument for argument in container(objects)["args"] if argument.startswith("--metrics-service")]
        assert not [item for item in objects if item["metadata"].get("namespace") == "kube-system"]

    def test_network_policies_of_models_let_the_pods_in(self) -> None:
        objects = rendered(EVERYTHING)
        options = [
            argument.partition("=")[2] for argument in container(objects)["args"] if "--operator-label" in argument
        ]
        labels = dict(option.split("=") for option in options)
        assert labels.items() <= pod(objects)["metadata"]["labels"].items()


class TestWebhook:
    def configuration(self, values: Values | None = None) -> Object:
        (webhook,) = only(rendered(values), "ValidatingWebhookConfiguration")["webhooks"]
        found: Object = webhook
        return found

    def early(self, values: Values | None = None) -> Object:
        (webhook,) = only(rendered(values), "MutatingWebhookConfiguration")["webhooks"]
        found: Object = webhook
        return found

    def test_it_fails_closed(self) -> None:
        webhook = self.configuration()
        assert (webhook["failurePolicy"], webhook["sideEffects"], webhook["timeoutSeconds"]) == ("Fail", "None", 10)

    def test_the_early_call_is_the_same_but_for_its_path_and_may_fail(self) -> None:
        for values in ({}, NAMESPACED):
            early, late = self.early(values), self.configuration(values)
            assert early.pop("reinvocationPolicy") == "Never"
            assert (early.pop("failurePolicy"), late.pop("failurePolicy")) == ("Ignore", "Fail")
            assert early["clientConfig"]["service"].pop("path") == webhook.EARLY_PATH
            assert late["clientConfig"]["service"].pop("path") == webhook.PATH
            assert early == late

    def test_what_the_operator_fills_in_is_left_to_it(self) -> None:
        for configuration in (self.configuration(), self.early()):
            assert "rules" not in configuration
            assert "caBundle" not in configuration["clientConfig"]
        assert "data" not in only(rendered(), "Secret")

    def test_calls_reach_the_pods(self) -> None:
        objects = rendered()
        called = self.configuration()["clientConfig"]["service"]
        service = only(objects, "Service", ending="-tls")
        assert (called["name"], called["namespace"]) == (service["metadata"]["name"], service["metadata"]["namespace"])
        assert called["path"] == webhook.PATH
        assert called["port"] == service["spec"]["ports"][0]["port"]
        assert service["spec"]["selector"].items() <= pod(objects)["metadata"]["labels"].items()
        ports = {port["name"]: port["containerPort"] for port in container(objects)["ports"]}
        assert ports[service["spec"]["ports"][0]["targetPort"]] == names.OPERATOR_TLS_PORT
        assert f"--tls-host={called['name']}.{called['namespace']}.svc" in container(objects)["args"]
        assert f"--tls-secret={only(objects, 'Secret')['metadata']['name']}" in container(objects)["args"]

    def test_a_network_policy_lets_the_api_server_in(self) -> None:
        (calls, metrics) = only(rendered(), "NetworkPolicy")["spec"]["ingress"]
        assert calls == {"ports": [{"port": "https", "protocol": "TCP"}]}, "it may come from anywhere"
        assert metrics == {"ports": [{"port": "http", "protocol": "TCP"}]}

    def test_the_network_policy_can_be_made_narrower(self) -> None:
        (calls, _) = only(rendered(OWN_CLIENT_CA), "NetworkPolicy")["spec"]["ingress"]
        assert calls["from"] == [{"ipBlock": {"cidr": "10.0.0.0/28"}}]
        (_, metrics) = only(rendered(EVERYTHING), "NetworkPolicy")["spec"]["ingress"]
        assert metrics["from"] == [{"namespaceSelector": {"matchLabels": {"team": "monitoring"}}}]
        assert not of_kind(rendered({"networkPolicy": {"enabled": False}}), "NetworkPolicy")

    def test_it_asks_for_a_client_certificate_where_that_is_wanted(self) -> None:
        plain, published, own = (rendered(values) for values in ({}, CLIENT_CERTIFICATE, OWN_CLIENT_CA))
        assert not [argument for argument in container(plain)["args"] if argument.startswith("--webhook-client")]
        assert "--webhook-client-certificate" in container(published)["args"]
        assert "--webhook-client-ca=/client-ca/ca.crt" not in container(published)["args"]
        assert {
            "--webhook-client-certificate",
            "--webhook-client-ca=/client-ca/ca.crt",
            "--webhook-client-name=kube-apiserver",
        } <= set(container(own)["args"])
        assert {"name": "client-ca", "configMap": {"name": "webhook-ca"}} in pod(own)["spec"]["volumes"]
        assert {"name": "client-ca", "mountPath": "/client-ca", "readOnly": True} in container(own)["volumeMounts"]

    @pytest.mark.parametrize(
        ("values", "reads"),
        [({}, False), (CLIENT_CERTIFICATE, True), (OWN_CLIENT_CA, False)],
        ids=["plain", "published", "own"],
    )
    def test_it_may_read_what_the_api_server_publishes_where_it_goes_by_that(self, values: Values, reads: bool) -> None:
        bindings = of_kind(rendered({**values, "metricsApi": {"enabled": False}}), "RoleBinding")
        roles = [b["roleRef"]["name"] for b in bindings if b["metadata"]["namespace"] == "kube-system"]
        assert roles == (["extension-apiserver-authentication-reader"] if reads else [])

    def test_only_watched_namespaces_depend_on_it(self) -> None:
        (expression,) = self.configuration(NAMESPACED)["namespaceSelector"]["matchExpressions"]
        assert expression["values"] == NAMESPACED["watchNamespaces"]
        assert "namespaceSelector" not in self.configuration()

    def test_cert_manager_may_make_the_certificate(self) -> None:
        objects = rendered(CERT_MANAGER)
        certificate, issuer = only(objects, "Certificate", ending="-tls"), only(objects, "Issuer", ending="-tls")
        assert certificate["spec"]["issuerRef"] == {"name": issuer["metadata"]["name"]}
        authority, root = only(objects, "Certificate", ending="-ca"), only(objects, "Issuer", ending="-ca")
        assert issuer["spec"] == {"ca": {"secretName": authority["spec"]["secretName"]}}
        assert authority["spec"]["issuerRef"] == {"name": root["metadata"]["name"]}
        assert (authority["spec"]["isCA"], root["spec"]) == (True, {"selfSigned": {}})
        volume = next(volume for volume in pod(objects)["spec"]["volumes"] if volume["name"] == "tls")
        assert volume["secret"]["secretName"] == certificate["spec"]["secretName"]
        for kind in ("Validating", "Mutating"):
            annotations = only(objects, f"{kind}WebhookConfiguration")["metadata"]["annotations"]
            assert annotations["cert-manager.io/inject-ca-from"] == f"{NAMESPACE}/{certificate['metadata']['name']}"
        assert not of_kind(objects, "Secret")
        named = {"webhook": {"certManager": {"enabled": True, "issuerRef": {"name": "ca", "kind": "ClusterIssuer"}}}}
        assert only(rendered(named), "Certificate")["spec"]["issuerRef"] == {"name": "ca", "kind": "ClusterIssuer"}
        assert not of_kind(rendered(named), "Issuer")

    def test_it_can_be_left_out(self) -> None:
        objects = rendered({"webhook": {"enabled": False}, "metricsApi": {"enabled": False}})
        assert not [item for item in objects if "tls" in item["metadata"]["name"]]
        assert not [item for item in objects if item["kind"].endswith("WebhookConfiguration")]
        assert not [argument for argument in container(objects)["args"] if "tls" in argument or "webhook" in argument]


class TestMetrics:
    def test_the_monitor_finds_the_service(self) -> None:
        objects = rendered(WITH_MONITOR)
        monitor = only(objects, "ServiceMonitor")
        service = only(objects, "Service", ending="-metrics")
        assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
        assert monitor["spec"]["endpoints"][0]["port"] == service["spec"]["ports"][0]["name"]
        assert monitor["metadata"]["labels"]["release"] == "prometheus"

    def test_the_service_finds_the_pods(self) -> None:
        objects = rendered()
        assert (
            only(objects, "Service", ending="-metrics")["spec"]["selector"].items()
            <= pod(objects)["metadata"]["labels"].items()
        )


class TestRollouts:
    @pytest.mark.parametrize(
        "values",
        [
            {"replicas": 3},
            {"webhook": {"timeoutSeconds": 20}},
            {"rbac": {"userRoles": False}},
            {"crds": {"keep": False}},
            {"metrics": {"service": {"annotations": {"a": "b"}}}},
            {"networkPolicy": {"enabled": False}},
            {"serviceAccount": {"annotations": {"a": "b"}}},
        ],
        ids=str,
    )
    def test_a_value_that_pods_do_not_depend_on_restarts_none(self, values: Values) -> None:
        assert pod(rendered(values)) == pod(rendered())

    def test_a_new_chart_of_the_same_operator_restarts_none(self, tmp_path: Path) -> None:
        chart = shutil.copytree(CHART, tmp_path / CHART.name)
        file = chart / "Chart.yaml"
        text = file.read_text(encoding="utf-8")
        file.write_text(text.replace(f"\nversion: {NUMBER}", "\nversion: 98.76.54"), encoding="utf-8")
        assert only(rendered(chart=chart), "Deployment") != only(rendered(), "Deployment")
        assert pod(rendered(chart=chart)) == pod(rendered())

    @all_value_sets
    def test_rendering_twice_gives_the_same(self, values: Values) -> None:
        first, second = (helm("template", RELEASE, "--kube-version=1.34.0", values=values) for _ in range(2))
        assert first == second

    def test_nothing_asks_the_cluster_or_runs_as_a_hook(self) -> None:
        """Except for the objects of `helm test`, which Argo CD and Flux do not create on their own."""
        for template in (CHART / "templates").rglob("*.*"):
            text = template.read_text(encoding="utf-8")
            functions = r"{{[^}]*\b(?:lookup|rand\w*|uuidv4|gen[A-Z]\w*|now)\b"
            assert not re.findall(rf"{functions}|helm\.sh/hook: (?!test\n)", text), template


class TestNames:
    @all_value_sets
    def test_every_object_says_where_it_is_from(self, values: Values) -> None:
        for item in rendered(values):
            assert item["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "Helm", item["metadata"]
            assert item["metadata"]["labels"]["app.kubernetes.io/instance"] == RELEASE
            assert item["metadata"]["labels"]["helm.sh/chart"] == f"pdinference-operator-{NUMBER}"

    def test_the_release_is_part_of_them(self) -> None:
        assert only(rendered(release="blue"), "Deployment")["metadata"]["name"] == "blue-pdinference-operator"

    def test_the_longest_fit(self) -> None:
        objects = rendered({"nameOverride": "n" * 50, "rbac": {"create": True}}, release="r" * 53)
        policies = {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
        webhooks = {"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"}
        long = {"ClusterRole", "ClusterRoleBinding", "RoleBinding", *webhooks, *policies}
        limits = {item["metadata"]["name"]: 253 if item["kind"] in long else 63 for item in objects}
        assert not [name for name, limit in limits.items() if len(name) > limit]


class TestNotes:
    @pytest.fixture
    def chart(self, tmp_path: Path) -> Path:
        """The chart with its notes in a ConfigMap: Helm shows them only when it installs into a cluster."""
        chart = shutil.copytree(CHART, tmp_path / CHART.name)
        include = '{{ include (print .Template.BasePath "/NOTES.txt") . | toJson }}'
        template = f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: notes}}\ndata: {{notes: {include}}}\n"
        (chart / "templates" / "notes.yaml").write_text(template, encoding="utf-8")
        return chart

    @pytest.mark.parametrize(("values", "namespace"), [({}, "default"), (NAMESPACED, "models")], ids=["all", "some"])
    def test_they_hold_a_valid_example(self, chart: Path, values: Values, namespace: str) -> None:
        example = yaml.safe_load(notes(chart, values).split("<<'EOF'\n")[1].split("EOF\n")[0])
        assert validated(example).metadata.namespace == namespace

    def test_they_say_what_to_add_on_a_cluster_without_gpus(self, chart: Path) -> None:
        text = notes(chart, {})
        example = yaml.safe_load(text.split("<<'EOF'\n")[1].split("EOF\n")[0])
        example["spec"] |= yaml.safe_load(text.split("add to the spec:\n\n")[1].split("\n\n")[0])
        spec = validated(example).spec
        assert {spec.parameter.accelerator.type, spec.decode.accelerator.type} == {"CPU"}

    @pytest.mark.parametrize(
        ("options", "values", "said"),
        [
            (["--api-versions=keda.sh/v1alpha1"], {}, True),
            (["--api-versions=keda.sh/v1alpha1"], {"autoscaling": {"keda": KEDA}}, False),
            ([], {}, False),
        ],
        ids=["KEDA is there", "KEDA is in use", "no KEDA"],
    )
    def test_they_say_how_to_use_the_clusters_keda(
        self, chart: Path, options: list[str], values: Values, said: bool
    ) -> None:
        text = helm("template", RELEASE, "--kube-version=1.34.0", *options, chart=chart, values=values)
        assert ("--set autoscaling.keda.enabled=true" in text) is said

    def test_they_say_which_namespaces_are_looked_after(self, chart: Path) -> None:
        assert "in all namespaces." in notes(chart, {})
        assert "in these namespaces: models, research." in notes(chart, NAMESPACED)

    def test_they_say_what_is_missing(self, chart: Path) -> None:
        assert "must be there before the operator starts" in notes(chart, WITHOUT_EXTRAS)
        kept_out = "keep Prometheus out of the vLLM and router pods: set autoscaling.prometheusNamespace."
        assert kept_out in notes(chart, {"autoscaling": {"podMonitor": {"enabled": True}}})
        assert kept_out not in notes(chart, WITH_PROMETHEUS)


def notes(chart: Path, values: Values) -> str:
    text: str = only(rendered(values, chart=chart), "ConfigMap", ending="notes")["data"]["notes"]
    return text


def test_older_kubernetes_is_refused() -> None:
    with pytest.raises(HelmError, match="requires kubeVersion"):
        rendered(kubernetes="1.29.9")


def test_the_version_names_of_clouds_are_accepted() -> None:
    assert rendered(kubernetes="v1.30.2-eks-1552ad0")


def test_the_package_holds_everything(tmp_path: Path) -> None:
    subprocess.run([binary("helm"), "package", CHART, "--destination", tmp_path], check=True, capture_output=True)
    package = tmp_path / f"pdinference-operator-{NUMBER}.tgz"
    with tarfile.open(package) as archive:
        packed = archive.getnames()
    assert {f"pdinference-operator/files/crds/{path.name}" for path in CRDS} <= set(packed)
    assert rendered(chart=package) == rendered()


class TestPolicy:
    def read(self, values: Values, folder: Path) -> Policy:
        (option,) = (a for a in arguments_here(rendered(values), folder) if a.startswith("--policy="))
        policy = subcommands(main)["validate"].make_context("validate", [option, "-f", "-"]).params["policy"]
        assert isinstance(policy, Policy)
        return policy

    def test_the_charts_is_the_operators_own_by_default(self, tmp_path: Path) -> None:
        assert self.read({}, tmp_path) == Policy()

    def test_the_operator_reads_what_the_values_say(self, tmp_path: Path) -> None:
        policy = self.read(EVERYTHING, tmp_path)
        assert policy.volume_types == ["nfs"]
        assert policy.secrets == ["side-car-*"]
        assert policy.labels == Policy().labels
        assert policy.tolerations == ["*", ""]
        readable, writable = policy.allowed_host_paths
        assert (readable.path, readable.read_only, readable.namespaces) == ("/srv/models", True, [])
        assert (writable.path, writable.read_only, writable.namespaces) == ("/srv/cache", False, ["models", "research"])

    def test_another_policy_restarts_the_operator(self) -> None:
        values: list[Values] = [{}, {"policy": {"secrets": ["x"]}}, {"allowedHostPaths": [{"path": "/srv"}]}]
        assert len({pod(rendered(each))["metadata"]["annotations"][POLICY_ANNOTATION] for each in values}) == 3

    def test_the_values_are_the_members_of_a_policy(self) -> None:
        schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))["properties"]
        members = {str(field.alias) for field in Policy.model_fields.values()}
        assert members == {"allowedHostPaths", *schema["policy"]["properties"]}


class TestHelmTest:
    @tested_value_sets
    def test_it_may_only_create_resources_where_the_operator_serves_them(self, values: Values) -> None:
        objects = rendered_test(values)
        assert [item["kind"] for item in objects] == ["ServiceAccount", "Role", "RoleBinding", "Pod"]
        account, role, binding, test_pod = objects
        assert role["rules"] == [{"apiGroups": ["pdinference.io"], "resources": ["pdinferences"], "verbs": ["create"]}]
        assert binding["roleRef"]["name"] == role["metadata"]["name"]
        assert binding["subjects"] == [
            {"kind": "ServiceAccount", "name": account["metadata"]["name"], "namespace": NAMESPACE}
        ]
        assert test_pod["spec"]["serviceAccountName"] == account["metadata"]["name"]
        removed = [item["metadata"]["annotations"]["helm.sh/hook-delete-policy"] for item in objects]
        assert ["hook-succeeded" in policy for policy in removed] == [True, True, True, False]
        served = values.get("watchNamespaces", [NAMESPACE])[0]
        assert role["metadata"]["namespace"] == binding["metadata"]["namespace"] == served
        assert f"--namespace={served}" in test_pod["spec"]["containers"][0]["args"]

    @tested_value_sets
    def test_its_pod_is_restricted_and_none_of_the_operators(self, values: Values) -> None:
        test_pod = of_kind(rendered_test(values), "Pod")[0]
        assert list(restricted_problems(test_pod)) == []
        selector = only(rendered(values), "Deployment")["spec"]["selector"]["matchLabels"]
        assert not selector.items() <= test_pod["metadata"]["labels"].items()
        assert test_pod["spec"]["containers"][0]["image"] == container(rendered(values))["image"]

    @pytest.mark.parametrize(
        ("values", "left_out"),
        [
            ({}, []),
            (NAMESPACED, ["--no-metrics-api"]),
            ({"webhook": {"enabled": False}}, ["--no-webhook"]),
            ({"metricsApi": {"enabled": False}}, ["--no-metrics-api"]),
        ],
    )
    def test_it_checks_what_is_installed(self, values: Values, left_out: list[str]) -> None:
        command, _, *options = of_kind(rendered_test(values), "Pod")[0]["spec"]["containers"][0]["args"]
        assert (command, options) == ("check", left_out)

    def test_there_is_none_without_anything_to_check(self) -> None:
        assert not rendered_test(WITHOUT_EXTRAS)


@pytest.mark.parametrize("page", ["admission.md", "operations.md"])
def test_the_command_of_a_page_finds_the_policy_among_the_configmaps(page: str) -> None:
    """The API server sorts by name: the dashboard and rules of an adapter come before the policy."""
    first, *others = sorted(
        of_kind(rendered({"dashboard": {"enabled": True}}), "ConfigMap"), key=lambda item: str(item["metadata"]["name"])
    )
    assert "policy.yaml" not in first["data"]
    assert [item for item in others if "policy.yaml" in item["data"]]
    paths = re.findall(r"jsonpath='\{(\S+)\.data\.policy", (REPOSITORY / "docs" / page).read_text(encoding="utf-8"))
    assert paths == [".items[*]"]
