"""The settings of an installed operator are read from the objects of its chart."""

import asyncio
from pathlib import Path
from typing import Final

import pytest

from pdinference.api.installation_policy import Policy
from pdinference.cli.installed import Installed, installed
from pdinference.cluster.errors import ApiError
from pdinference.manifests import KedaSettings, RenderSettings
from tests.charts.helm import EVERYTHING, NAMESPACE, NAMESPACED, WITH_PROMETHEUS, Object, Values, only, rendered
from tests.cluster.fake_api import FakeApi

_DEPLOYMENTS: Final = "/apis/apps/v1/deployments"
_CONFIG_MAPS: Final = f"/api/v1/namespaces/{NAMESPACE}/configmaps"


def cluster(*installations: list[Object]) -> FakeApi:
    """A cluster with these installations of the chart."""
    api = FakeApi()
    for objects in installations:
        deployment, policy = only(objects, "Deployment"), only(objects, "ConfigMap", ending="-policy")
        api.put(f"{_DEPLOYMENTS}/{deployment['metadata']['name']}", deployment)
        api.put(f"{_CONFIG_MAPS}/{policy['metadata']['name']}", policy)
    return api


def found(api: FakeApi, namespace: str = "models", given: RenderSettings = RenderSettings()) -> Installed:  # noqa: B008
    return asyncio.run(installed(api, namespace, given))


def test_all_settings_are_those_of_the_deployment() -> None:
    read = found(cluster(rendered(EVERYTHING)))
    assert read.settings.router_image == "registry.example:5000/team/router:1.2.3"
    assert read.settings.runner_image == "registry.example:5000/team/operator@sha256:" + "0" * 64
    assert read.settings.operator_namespace == NAMESPACE
    assert dict(read.settings.operator_labels)["app.kubernetes.io/name"] == "pdinference-operator"
    assert read.settings.policy.volume_types == ["nfs"]
    assert [rule.path for rule in read.settings.policy.allowed_host_paths] == ["/srv/models", "/srv/cache"]
    assert read.source == f"They are those of the Deployment {NAMESPACE}/pdi."


def test_keda_is_read() -> None:
    keda = found(cluster(rendered(WITH_PROMETHEUS))).settings.keda
    assert isinstance(keda, KedaSettings)
    assert keda.authentication == ("TriggerAuthentication", "thanos")


def test_options_take_precedence_and_nothing_is_read() -> None:
    api = cluster(rendered(EVERYTHING))
    given = RenderSettings(router_image="mine:1")
    assert found(api, given=given).settings == given
    assert not api.requests


def test_of_several_operators_the_one_that_serves_the_namespace_counts() -> None:
    elsewhere: Values = {"watchNamespaces": ["elsewhere"], "fullnameOverride": "other"}
    api = cluster(rendered(NAMESPACED), rendered(elsewhere))
    assert found(api, "models").source.endswith("/pdinference-operator.")
    assert found(api, "elsewhere").source.endswith("/other.")
    assert "No operator's Deployment serves the namespace third." in found(api, "third").source
    both = cluster(rendered(), rendered(elsewhere))
    assert "2 Deployments of operators serve the namespace elsewhere." in found(both, "elsewhere").source


@pytest.mark.parametrize("path", [_DEPLOYMENTS, f"{_CONFIG_MAPS}/pdi-policy"])
def test_without_the_right_the_defaults_hold_and_the_reason_is_given(path: str) -> None:
    api = cluster(rendered(EVERYTHING))
    api.fail("get", path, ApiError(403, "Forbidden", "deployments.apps is forbidden"))
    read = found(api)
    assert read.settings == RenderSettings()
    assert read.source.startswith("They are the defaults. ")
    assert "deployments.apps is forbidden" in read.source


def test_options_that_cannot_be_read_are_named() -> None:
    objects = rendered({"extraArgs": ["--keda-authentication=nonsense"]})
    read = found(cluster(objects))
    assert read.settings == RenderSettings()
    assert "The options of the Deployment" in read.source
    assert "TriggerAuthentication/NAME" in read.source


def test_a_policy_that_is_not_valid_is_named(tmp_path: Path) -> None:
    objects = rendered()
    only(objects, "ConfigMap", ending="-policy")["data"]["policy.yaml"] = "nonsense: 1"
    read = found(cluster(objects))
    assert read.settings.policy == Policy()
    assert "Unknown field. A policy has" in read.source
