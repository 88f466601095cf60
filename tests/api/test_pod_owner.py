"""Pods as the controllers of Kubernetes make them are of their workload; with any one thing changed they are not."""

import copy
from collections.abc import Callable, Iterator
from itertools import permutations
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from pdinference.api import names
from pdinference.api.pod_owner import is_of_workload
from pdinference.api.v1alpha1 import PDBatch, PDInference
from pdinference.checks import examine
from pdinference.engine.batch import ServiceAccess
from pdinference.manifests import Manifest, RenderSettings, render
from pdinference.manifests.batch import render_batch
from tests.conftest import EXAMPLES, FOR_EVERY_FIELD, allowing, example_documents
from tests.controllers import pod_of
from tests.properties.specs import SPECS
from tests.properties.specs import resource as of_spec

Json = dict[str, Any]
Make = Callable[..., PDInference]

SETTINGS = RenderSettings(policy=FOR_EVERY_FIELD)
CACHED = {"source": {"huggingFace": {"repository": "a/b"}}, "cache": {"persistentVolumeClaim": {"claimName": "models"}}}
LAYOUTS: dict[str, tuple[Json, set[str]]] = {
    "P and D": ({}, {"parameter", "decode", "router"}),
    "a model Job": ({"model": CACHED}, {"parameter", "decode", "router", "model"}),
    "P of three nodes": (
        {"parameter": {"parallelism": {"nodes": 3, "pipeline": 3}}},
        {"parameter", "parameter-node", "decode", "router"},
    ),
    "P and D in one pod": ({"transfer": {"hostLocal": {"parameter": 1, "decode": 2}}}, {"decode", "router"}),
    "D alone": ({"mode": "Aggregated"}, {"decode", "router"}),
}
FORGED = ("apiVersion", "kind", "name")
"""What of the controller's reference is compared."""
_RUNS_PODS = ("Deployment", "StatefulSet", "Job")


def pods(objects: tuple[Manifest, ...]) -> list[Json]:
    return [pod_of(one) for one in objects if one["kind"] in _RUNS_PODS]


def of_layout(make: Make, layout: str) -> list[Json]:
    return pods(render(make(**LAYOUTS[layout][0]), SETTINGS).objects)


def changed(pod: Json) -> Iterator[tuple[str, Json]]:
    """The pod with one thing changed, of all that has to fit."""

    def other(change: Callable[[Json], object]) -> Json:
        body = copy.deepcopy(pod)
        change(body["metadata"])
        return body

    yield "no owner", other(lambda metadata: metadata.pop("ownerReferences"))
    yield "no owners", other(lambda metadata: metadata.update(ownerReferences=[]))
    yield "owned, not controlled", other(lambda metadata: metadata["ownerReferences"][0].update(controller=False))
    yield "owned, not said", other(lambda metadata: metadata["ownerReferences"][0].pop("controller"))
    (owner,) = pod["metadata"]["ownerReferences"]
    for member in FORGED:
        for value in (f"{owner[member]}-", f"x{owner[member]}", owner[member][:-1], owner[member].upper(), ""):
            if value != owner[member]:
                yield (
                    f"{member} {value}",
                    other(
                        lambda metadata, m=member, v=value: metadata["ownerReferences"][0].update({m: v})  # type: ignore[misc]
                    ),
                )
    for label in _needed(pod):
        yield f"without {label}", other(lambda metadata, key=label: metadata["labels"].pop(key))  # type: ignore[misc]
        yield f"another {label}", other(lambda metadata, key=label: metadata["labels"].update({key: "1x"}))  # type: ignore[misc]


def _needed(pod: Json) -> list[str]:
    """The labels that say which workload a pod is of."""
    labels = pod["metadata"]["labels"]
    if names.LABEL_BATCH in labels:
        return [names.LABEL_BATCH]
    of_role = {
        "parameter": [names.LABEL_REVISION],
        "parameter-node": [names.LABEL_REVISION, names.LABEL_NODE_RANK],
        "decode": [names.LABEL_REVISION, "pod-template-hash"],
        "router": ["pod-template-hash"],
        "model": ["batch.kubernetes.io/job-name"],
    }
    return [names.LABEL_NAME, names.LABEL_ROLE, *of_role[labels[names.LABEL_ROLE]]]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_pods_of_each_layout_are_of_their_workload(resource: Make, layout: str) -> None:
    found = of_layout(resource, layout)
    assert {pod["metadata"]["labels"][names.LABEL_ROLE] for pod in found} == LAYOUTS[layout][1]
    for pod in found:
        assert is_of_workload(pod), pod["metadata"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_with_one_thing_changed_a_pod_is_a_strangers(resource: Make, layout: str) -> None:
    for pod in of_layout(resource, layout):
        for change, body in changed(pod):
            assert not is_of_workload(body), (pod["metadata"]["name"], change)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_owner_of_another_workload_does_not_count(resource: Make, layout: str) -> None:
    """Workloads of one resource, of another revision of it, and of another resource."""
    specs = LAYOUTS[layout][0]
    made = [("llama", specs), ("llama", {**specs, "engine": {"image": "other:1"}}), ("llama-decode", specs)]
    found = [pod for name, spec in made for pod in pods(render(resource(name, **spec), SETTINGS).objects)]
    for pod, other in permutations(found, 2):
        references = other["metadata"]["ownerReferences"]
        if references != pod["metadata"]["ownerReferences"]:
            assert not is_of_workload({"metadata": {**pod["metadata"], "ownerReferences": references}})


def test_the_pods_of_a_batch_are_of_its_job(batch_document: Callable[..., Json]) -> None:
    batch = PDBatch.model_validate(batch_document())
    (pod,) = pods(tuple(render_batch(batch, ServiceAccess("http://llama.models.svc", "llama"), RenderSettings())))
    assert is_of_workload(pod)
    for change, body in changed(pod):
        assert not is_of_workload(body), change


def test_a_further_owner_that_is_no_controller_changes_nothing(resource: Make) -> None:
    further = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "u"}
    for pod in of_layout(resource, "P of three nodes"):
        pod["metadata"]["ownerReferences"].insert(0, further)
        assert is_of_workload(pod)
        pod["metadata"]["ownerReferences"] = [further]
        assert not is_of_workload(pod)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_pods_of_each_example_are_of_their_workload(example: Any) -> None:
    for document in example_documents(example):
        resource = PDInference.model_validate(document)
        found = pods(render(resource, RenderSettings()).objects)
        assert found
        assert all(map(is_of_workload, found))


@settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
@given(SPECS)
def test_pods_of_every_valid_spec_are_of_their_workload(spec: Json) -> None:
    settings = RenderSettings(policy=allowing("/srv"))
    resource = examine(of_spec(spec), settings).resource
    if resource is not None:
        assert all(map(is_of_workload, pods(render(resource, settings).objects)))
