"""The bundle for the Operator Lifecycle Manager is what the chart installs, and valid to those who check bundles."""

import re
import shutil
import subprocess
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import yaml

from e2e import charts, images, olm
from e2e.cluster.build import binary
from pdinference.admission.webhook import WEBHOOK_RULES
from tests.charts.helm import CHART, of_kind, only, rendered

Json = dict[str, Any]
NUMBER = charts.version()
PAGE = images.REPOSITORY / "docs" / "olm.md"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle, unpacked, beside the file of admission policies."""
    folder = tmp_path_factory.mktemp("olm")
    olm.write(folder, CHART, NUMBER)
    unpack(folder, folder / "bundle")
    return folder


@pytest.fixture(scope="module")
def manifests(folder: Path) -> list[Json]:
    """Its objects."""
    files = sorted((folder / "bundle" / "manifests").iterdir())
    return [yaml.load(file.read_text(encoding="utf-8"), yaml.CSafeLoader) for file in files]


@pytest.fixture(scope="module")
def spec(manifests: list[Json]) -> Json:
    """Of the ClusterServiceVersion."""
    return dict(only(manifests, "ClusterServiceVersion")["spec"])


def unpack(folder: Path, target: Path) -> None:
    shutil.unpack_archive(olm.packed(folder, NUMBER), target, "gztar")


@pytest.fixture(scope="module")
def documented() -> list[Json]:
    """The objects and parts of objects that the page has users write."""
    blocks = re.findall(r"^ *```yaml\n(.*?)^ *```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return [each for block in blocks for each in yaml.safe_load_all(dedent(block)) if each]


def checked(bundle: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([binary("bundle-check"), bundle], capture_output=True, text=True, check=False)


def test_the_validators_miss_nothing_but_an_icon_and_examples_of_what_no_user_creates(folder: Path) -> None:
    done = checked(folder / "bundle")
    assert done.returncode == 0, done.stdout + done.stderr
    example = "provided API should have an example annotation"
    assert sorted(done.stdout.splitlines()) == [
        f"Warning: Value : (pdinference-operator.v{NUMBER}) csv.Spec.Icon not specified",
        f"Warning: Value external.metrics.k8s.io/v1beta1, Kind=ExternalMetricValueList: {example}",
        f"Warning: Value pdinference.io/v1alpha1, Kind=PDScaler: {example}",
    ]


def test_the_validators_find_what_is_wrong(folder: Path, tmp_path: Path) -> None:
    """A bundle without one of its CustomResourceDefinitions."""
    unpack(folder, tmp_path)
    (tmp_path / "manifests" / "pdbatches.pdinference.io.crd.yaml").unlink()
    done = checked(tmp_path)
    assert done.returncode == 1
    assert 'PDBatch" not found in bundle' in done.stdout


def test_it_runs_what_the_chart_runs(spec: Json) -> None:
    """But for the namespace, the certificate, and the completion of webhook configurations, which is OLM's."""
    (deployment,) = spec["install"]["spec"]["deployments"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    chart = only(rendered({"fullnameOverride": charts.CHART.name}, release=charts.RELEASE), "Deployment")["spec"]
    (of_chart,) = chart["template"]["spec"]["containers"]
    own = ("--tls-", "--webhook-configuration", "--metrics-service")
    kept = [each for each in of_chart["args"] if not each.startswith(own)]
    assert [each for each in container["args"] if not each.startswith(own)] == [
        each.replace(charts.NAMESPACE, "$(POD_NAMESPACE)") for each in kept
    ]
    for name in ("image", "ports", "resources", "securityContext", "readinessProbe", "volumeMounts"):
        assert container[name] == of_chart[name]
    assert deployment["spec"]["replicas"] == chart["replicas"]
    assert deployment["spec"]["selector"] == chart["selector"]


def test_it_has_no_more_rights_than_the_chart(spec: Json, manifests: list[Json]) -> None:
    install = spec["install"]["spec"]
    given = [rule for name in ("permissions", "clusterPermissions") for each in install[name] for rule in each["rules"]]
    roles = [role for role in rendered() if role["kind"] in {"Role", "ClusterRole"}]
    of_chart = [rule for role in roles for rule in role["rules"]]
    assert [rule for rule in given if rule not in of_chart] == []
    assert not any("secrets" in rule["resources"] for rule in given)
    # Its own account gets none of the roles for users.
    assert {role["metadata"]["name"] for role in of_kind(manifests, "ClusterRole")} == {
        f"{charts.CHART.name}-{name}" for name in ("view", "edit")
    }


def test_the_webhooks_are_called_for_what_the_operator_examines(spec: Json) -> None:
    assert [(each["type"], each["webhookPath"], each["failurePolicy"]) for each in spec["webhookdefinitions"]] == [
        ("ValidatingAdmissionWebhook", "/validate", "Fail"),
        ("MutatingAdmissionWebhook", "/validate-early", "Ignore"),
    ]
    assert all(each["rules"] == [WEBHOOK_RULES] for each in spec["webhookdefinitions"])


def test_a_subscription_as_documented_finds_it(folder: Path, documented: list[Json]) -> None:
    annotations = yaml.safe_load((folder / "bundle" / "metadata" / "annotations.yaml").read_text(encoding="utf-8"))
    key = "operators.operatorframework.io.bundle"
    named = annotations["annotations"][f"{key}.package.v1"], annotations["annotations"][f"{key}.channel.default.v1"]
    (subscription,) = (each["spec"] for each in documented if each.get("kind") == "Subscription")
    assert (subscription["name"], subscription["channel"]) == named
    package, channel = (each for each in documented if each.get("schema"))
    assert (package["name"], package["defaultChannel"]) == (channel["package"], channel["name"]) == named
    assert channel["entries"] == [{"name": f"{named[0]}.v{NUMBER}"}]


def test_the_documented_volume_replaces_the_one_with_the_policy(spec: Json, documented: list[Json]) -> None:
    """OLM puts volumes of the Subscription in the place of those with the same name."""
    (deployment,) = spec["install"]["spec"]["deployments"]
    pod = deployment["spec"]["template"]["spec"]
    (volume,) = (each for each in pod["volumes"] if "configMap" in each)
    (container,) = pod["containers"]
    (mount,) = (each for each in container["volumeMounts"] if each["name"] == volume["name"])
    assert f"--policy={mount['mountPath']}/policy.yaml" in container["args"]
    (config,) = (each["spec"]["config"] for each in documented if "config" in each.get("spec", {}))
    assert [each["name"] for each in config["volumes"]] == [volume["name"]]


def test_the_admission_policies_are_beside_it(folder: Path) -> None:
    policies = list(yaml.safe_load_all((folder / olm.POLICIES).read_text(encoding="utf-8")))
    of_chart = rendered({"fullnameOverride": charts.CHART.name}, release=charts.RELEASE)
    for kind in ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"):
        assert [each["spec"] for each in of_kind(policies, kind)] == [each["spec"] for each in of_kind(of_chart, kind)]
    assert len(policies) == len([each for each in of_chart if each["kind"].startswith("ValidatingAdmissionPolicy")])


def test_an_object_without_a_place_in_a_bundle_is_refused(tmp_path: Path) -> None:
    chart = tmp_path / "chart"
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text("{apiVersion: v2, name: other, version: 1.2.3}")
    (chart / "templates" / "job.yaml").write_text("{apiVersion: batch/v1, kind: Job, metadata: {name: a, labels: {}}}")
    with pytest.raises(charts.ReleaseError, match="cannot have the Job of the chart"):
        olm.write(tmp_path, chart, NUMBER)
