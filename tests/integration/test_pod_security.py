"""Kubernetes' Pod Security admission and our checker agree on pods."""

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from pdinference.api.v1alpha1 import PDBatch
from pdinference.api.validation import validated
from pdinference.cluster.errors import ApiError
from pdinference.engine.batch import ServiceAccess
from pdinference.manifests import RenderSettings, render
from pdinference.manifests.batch import render_batch
from pdinference.manifests.pods.pod_security import restricted_problems
from tests.conftest import BATCH_EXAMPLE, EXAMPLES, example_documents, for_every_field
from tests.hostile.pod_templates import LEGITIMATE
from tests.integration.oldest import ADMITTED_PODS
from tests.integration.world import World
from tests.manifests.confined_pods import ALSO_GOOD, BAD, GOOD

Json = dict[str, Any]
EVERY_FIELD = Path(__file__).parents[1] / "manifests" / "every_field.yaml"
LABEL = "pod-security.kubernetes.io/enforce"
# What other admission looks for in the cluster, and the standard says nothing of.
ELSEWHERE = ("priorityClassName", "runtimeClassName", "serviceAccountName", "resourceClaims", "imagePullSecrets")


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
    *_, job = render_batch(PDBatch.model_validate(document), ServiceAccess("http://a", "a"), RenderSettings())
    template = job["spec"]["template"]
    assert list(restricted_problems(template)) == []
    assert await verdict(restricted, template) == ""


async def test_pods_of_every_field_with_side_cars_are_as_our_checker_says(restricted: World) -> None:
    """What the installation allows beyond the standard, folders of the node and IPC_LOCK, both refuse."""
    more = {"containers": [{"name": "s", "image": "s:1"}], "initContainers": [{"name": "i", "image": "i:1"}]}
    seen, settings = set(), RenderSettings(policy=for_every_field(restricted.namespace))
    for name, spec in yaml.safe_load(EVERY_FIELD.read_text(encoding="utf-8")).items():
        for role in ("parameter", "decode", "router"):
            spec.setdefault(role, {})["podTemplate"] = {"spec": more}
        document = {**restricted.resource("llama"), "spec": spec}
        for template in templates(iter([document]), settings):
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
        assert await verdict(restricted, pod) or name in ADMITTED_PODS, name


async def test_good_pods_are_admitted_by_both(restricted: World) -> None:
    for name, change in ALSO_GOOD.items():
        pod = deepcopy(GOOD)
        change(pod)
        assert list(restricted_problems(pod)) == [], name
        assert await verdict(restricted, pod) == "", name
