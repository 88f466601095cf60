"""A record's digest covers exactly the fields that clients may set."""

from copy import deepcopy
from typing import Any

from pdinference.api import names
from pdinference.cluster.state.records import child_record, version_of
from tests.cluster.objects import OWNER, Json, live, manifest, reference


def deployment(**status: Any) -> Json:
    labels = {names.LABEL_ROLE: "router", names.LABEL_REVISION: "old"}
    template = {"metadata": {"labels": {**labels, names.LABEL_REVISION: "new"}}}
    body = manifest("Deployment", "llama-router", replicas=2, template=template)
    body["metadata"]["labels"] |= labels
    return live(body, **status)


def test_status_versions_and_bookkeeping_do_not_change_the_digest() -> None:
    body = deployment()
    other = deepcopy(body)
    other["status"] = {"replicas": 5}
    other["metadata"] |= {"resourceVersion": "99", "generation": 7, "managedFields": []}
    other["metadata"]["annotations"] = {"deployment.kubernetes.io/revision": "3"}
    body["metadata"]["annotations"] = {}
    assert child_record("Deployment", body).digest == child_record("Deployment", other).digest


def test_labels_annotations_and_spec_do() -> None:
    digests = {child_record("Deployment", deployment()).digest}
    changes: tuple[Json, ...] = ({"labels": {}}, {"annotations": {"a": "b"}}, {"ownerReferences": []})
    for change in changes:
        body = deployment()
        body["metadata"] |= change
        digests.add(child_record("Deployment", body).digest)
    assert len(digests) == 4


def test_the_owner_is_the_resource_that_the_reference_names() -> None:
    record = child_record("Deployment", deployment())
    assert (record.owner, record.owner_uid) == (OWNER, "cr-1")


def test_an_owner_that_does_not_control_it_is_not_looked_at() -> None:
    """Another client wants the object deleted with that owner, which would delete it as none of its children."""
    body = live(manifest())
    other = {**reference("cr-2", "other"), "controller": False}
    body["metadata"]["ownerReferences"].insert(0, other)
    assert child_record("Service", body).owner == OWNER
    body["metadata"]["ownerReferences"] = [other]
    assert child_record("Service", body).owner is None


def test_kedas_hpa_belongs_to_the_owner_of_its_scaled_object() -> None:
    """So the resource is looked at when the HPA changes, or goes."""
    body = live(
        manifest("HorizontalPodAutoscaler", "keda-hpa-llama-decode", scaleTargetRef={"name": "x"}, maxReplicas=2)
    )
    scaled_object = {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "name": "llama-decode", "uid": "so-1"}
    owners = [{**scaled_object, "controller": True}]
    body["metadata"] |= {"ownerReferences": owners, "labels": {names.LABEL_NAME: OWNER.name}}
    record = child_record("HorizontalPodAutoscaler", body)
    assert (record.owner, record.owner_uid) == (OWNER, "so-1")
    body["metadata"]["labels"] = {}
    assert child_record("HorizontalPodAutoscaler", body).owner is None


def test_a_workloads_revision_is_the_one_of_its_pods() -> None:
    workload = child_record("Deployment", deployment(observedGeneration=1, replicas=2, readyReplicas=1)).workload
    assert workload is not None
    assert (workload.revision, workload.desired, workload.ready, workload.observed) == ("new", 2, 1, True)


def test_a_further_node_of_p_is_told_from_the_first() -> None:
    body = deployment()
    body["metadata"]["labels"] |= names.node_labels(names.Role.PARAMETER, 2)
    workload = child_record("StatefulSet", body).workload
    assert workload is not None
    assert (workload.role, workload.node_rank) == (names.Role.PARAMETER, 2)


def test_a_quota_shows_in_the_workload() -> None:
    failure = {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota"}
    workload = child_record("Deployment", deployment(conditions=[failure])).workload
    assert workload is not None
    assert workload.failure == "exceeded quota"


def test_versions_are_numbers_and_anything_else_is_unordered() -> None:
    assert version_of("10") > version_of("9")
    assert version_of("abc") == 0


def test_the_content_of_a_large_child_is_not_kept() -> None:
    """Thousands of them would fill the memory when the operator starts."""
    small, large = deployment(), deployment()
    large["metadata"]["annotations"] = {"x": "y" * 100_000}
    assert child_record("Deployment", small).content is not None
    record = child_record("Deployment", large)
    assert record.content is None
    assert record.digest
