"""`install.yaml` of a release with kubectl alone, on a cluster that never had the chart."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e import release
from e2e.cluster import Cluster
from e2e.cluster.waiting import wait_until
from tests.conftest import REPOSITORY, example_documents
from tests.integration.kubernetes import Kubernetes


@pytest.fixture
def fresh() -> Iterator[Kubernetes]:
    """A cluster without the chart's CRDs, which stay when a chart is uninstalled."""
    name = f"{os.environ.get('PDINFERENCE_CLUSTER', 'integration')}-apply"
    with Cluster.fresh(name, nodes=0) as cluster:
        yield Kubernetes(cluster)


def identities(objects: list[Any]) -> set[tuple[str, str, str]]:
    metadata = ((one["kind"], one["metadata"]) for one in objects)
    return {(kind, its.get("namespace", ""), its["name"]) for kind, its in metadata}


def test_kubectl_installs_and_upgrades_and_a_resource_can_be_created(fresh: Kubernetes, tmp_path: Path) -> None:
    release.write_all(tmp_path / "release")
    manifest = tmp_path / "release" / "install.yaml"
    for _ in ("install", "upgrade"):
        fresh.kubectl("apply", "--server-side", f"--filename={manifest}")
    documents = list(filter(None, yaml.safe_load_all(manifest.read_text(encoding="utf-8"))))
    stored = identities(fresh.get(f"--filename={manifest}")["items"])
    assert stored == identities(documents), "an object without a namespace would be in the caller's"

    (resource,) = example_documents(REPOSITORY / "examples" / "llama-8b.yaml")
    resource["metadata"]["namespace"] = "default"

    def served() -> bool:
        try:
            fresh.kubectl("get", "pdinferences,pdbatches,pdscalers")
        except AssertionError:  # the API server serves a CRD some moments after it is stored
            return False
        return True

    wait_until("the CRDs to be served", served, timeout=60)
    fresh.apply([resource])
    found = fresh.get("pdinference", resource["metadata"]["name"], "--namespace=default")
    applied, stored_model = (one["spec"]["model"]["source"]["huggingFace"] for one in (resource, found))
    assert stored_model == {**applied, "revision": "main"}, "the schema's defaults are filled in"
    with pytest.raises(AssertionError, match=r"spec\.model"):
        fresh.apply([{**resource, "spec": {}}])
