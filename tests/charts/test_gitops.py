"""The files of examples/gitops: valid for Argo CD and Flux, consistent with each other and with the chart."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from click.testing import CliRunner

from pdinference.cli import main
from tests.charts.gitops import EXAMPLES, Object, documents, kustomized, named, schemas
from tests.charts.helm import CHART, OLDEST_KUBERNETES, RELEASE, rendered

PATCH = EXAMPLES / "argocd" / "argocd-cm.yaml"
"""A patch, and so without kind and name."""
BUILT_IN = {("v1", "Namespace"), ("v1", "ConfigMap"), ("v1", "PersistentVolumeClaim")}
OBJECTS = [
    pytest.param(item, id=f"{file.relative_to(EXAMPLES)}: {item['kind']}")
    for file in sorted(set(EXAMPLES.rglob("*.yaml")) - {PATCH})
    for item in documents(file)
    if "kind" in item and not item["apiVersion"].startswith("kustomize.config.k8s.io/")
]
APPLICATIONS = sorted((EXAMPLES / "argocd").rglob("*/*.yaml"))
CLUSTERS = ("clusters/canary", "clusters/production")


@pytest.mark.parametrize("item", OBJECTS)
def test_every_field_of_an_object_is_in_its_schema(item: Object) -> None:
    key = (item["apiVersion"], item["kind"])
    if key not in BUILT_IN:
        validate(item)


def validate(item: Object) -> None:
    """`jsonschema.validate` also checks the schema, which takes 20 s with that of Argo CD's ApplicationSet."""
    schema = schemas()[item["apiVersion"], item["kind"]]
    jsonschema.validators.validator_for(schema)(schema).validate(item)


def test_a_field_that_no_schema_has_is_found() -> None:
    item = named(EXAMPLES / "argocd" / "root.yaml", "Application", "llm")
    item["spec"]["syncPolicy"]["automatic"] = {}
    with pytest.raises(jsonschema.ValidationError, match="'automatic' was unexpected"):
        validate(item)


@pytest.mark.parametrize("folder", [*CLUSTERS, "batches"])
def test_kustomize_makes_valid_resources(folder: str, tmp_path: Path) -> None:
    file = tmp_path / "resources.yaml"
    ours = [item for item in kustomized(folder) if item["apiVersion"].startswith("pdinference.io/")]
    file.write_text(yaml.safe_dump_all(ours), encoding="utf-8")
    result = CliRunner().invoke(main, ["validate", "-n", "models", "-f", str(file)])
    assert result.exit_code == 0, result.output
    assert ours


@pytest.mark.parametrize("folder", CLUSTERS)
def test_the_version_of_vllm_is_in_one_place(folder: str) -> None:
    (image,) = documents(EXAMPLES / "models" / "kustomization.yaml")[0]["images"]
    (model,) = kustomized(folder)
    assert model["spec"]["engine"]["image"] == f"{image['name']}:{image['newTag']}"


def test_a_cluster_may_have_other_counts() -> None:
    assert [kustomized(folder)[0]["spec"]["decode"]["replicas"] for folder in CLUSTERS] == [1, 2]


def sources(item: Object) -> Object:
    """The spec of an Application, or that of the Applications of an ApplicationSet."""
    spec: Object = item["spec"]["template"]["spec"] if item["kind"] == "ApplicationSet" else item["spec"]
    return spec


def operator_values() -> list[Any]:
    argo = [sources(item) for file in APPLICATIONS for item in documents(file) if file.name == "operator.yaml"]
    release = named(EXAMPLES / "flux" / "operator" / "release.yaml", "HelmRelease", RELEASE)
    return [*(spec["source"]["helm"]["valuesObject"] for spec in argo), release["spec"]["values"]]


@pytest.mark.parametrize("values", operator_values(), ids=["argocd/apps", "argocd/fleet", "flux"])
def test_the_chart_takes_the_values(values: Any) -> None:
    (operator,) = (item for item in rendered(values) if item["kind"] == "Deployment")
    (container,) = operator["spec"]["template"]["spec"]["containers"]
    assert container["image"].startswith("registry.example/operator:")


def test_all_install_the_version_of_the_chart() -> None:
    version = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))["version"]
    (app,) = documents(EXAMPLES / "argocd" / "apps" / "operator.yaml")
    repository = named(EXAMPLES / "flux" / "operator" / "release.yaml", "OCIRepository", RELEASE)
    found = [sources(app)["source"]["targetRevision"], repository["spec"]["ref"]["tag"]]
    assert found == [version] * 2
    assert revisions("operator") == {"canary": version, "production": version}


def test_the_project_allows_what_the_chart_has_and_no_other_cluster_wide_kind() -> None:
    spec = named(EXAMPLES / "argocd" / "root.yaml", "AppProject", "llm")["spec"]
    allowed = {(entry["group"], entry["kind"]) for entry in spec["clusterResourceWhitelist"]}
    namespaces = {entry["namespace"] for entry in spec["destinations"]}
    objects = rendered(kubernetes=OLDEST_KUBERNETES)
    wide = [item for item in objects if "namespace" not in item["metadata"]]
    kinds = {(item["apiVersion"].rpartition("/")[0], item["kind"]) for item in wide}
    assert allowed == kinds | {("", "Namespace")}
    assert {item["metadata"]["namespace"] for item in objects if item not in wide} <= namespaces


@pytest.mark.parametrize("file", APPLICATIONS, ids=lambda file: str(file.relative_to(EXAMPLES)))
def test_an_application_is_within_its_project_and_its_folder_exists(file: Path) -> None:
    project = named(EXAMPLES / "argocd" / "root.yaml", "AppProject", "llm")["spec"]
    (item,) = documents(file)
    spec = sources(item)
    assert spec["project"] == "llm"
    assert spec["source"]["repoURL"] in project["sourceRepos"]
    assert spec["destination"]["namespace"] in {entry["namespace"] for entry in project["destinations"]}
    for stage in ("canary", "production"):
        folder = spec["source"].get("path", "").replace("{{.metadata.labels.stage}}", stage)
        assert (EXAMPLES / folder).is_dir()


def test_the_operator_comes_before_models_and_batches() -> None:
    files = sorted((EXAMPLES / "argocd" / "apps").glob("*.yaml"))
    annotations = {file.stem: documents(file)[0]["metadata"]["annotations"] for file in files}
    waves = {name: int(found["argocd.argoproj.io/sync-wave"]) for name, found in annotations.items()}
    assert waves == {"operator": 0, "models": 1, "batches": 1}
    depends = {
        name: [other["name"] for other in kustomization(name)["spec"].get("dependsOn", [])]
        for name in ("operator", "models", "batches")
    }
    assert depends == {"operator": [], "models": ["operator"], "batches": ["models"]}


def kustomization(name: str) -> Object:
    return named(EXAMPLES / "flux" / "apps" / f"{name}.yaml", "Kustomization", name)


@pytest.mark.parametrize("name", ["operator", "models", "batches"])
def test_flux_has_the_folders_and_waits(name: str) -> None:
    spec = kustomization(name)["spec"]
    assert (EXAMPLES / spec["path"] / "kustomization.yaml").is_file()
    assert spec["wait"] is True


def test_flux_keeps_the_namespace_of_models_that_are_to_run_on() -> None:
    assert kustomization("models")["spec"]["deletionPolicy"] == "Orphan"
    namespace = named(EXAMPLES / "flux" / "apps" / "models.yaml", "Namespace", "models")
    assert namespace["metadata"]["annotations"] == {"kustomize.toolkit.fluxcd.io/prune": "disabled"}


def ignored() -> list[Object]:
    """Each Application with its ignored fields."""
    return [spec for file in APPLICATIONS for item in documents(file) if "ignoreDifferences" in (spec := sources(item))]


def test_ignored_fields_are_ignored_by_syncs_too() -> None:
    assert len(ignored()) == 2
    for spec in ignored():
        assert "RespectIgnoreDifferences=true" in spec["syncPolicy"]["syncOptions"]
        (entry,) = spec["ignoreDifferences"]
        assert (entry["kind"], entry["jsonPointers"]) == ("PDInference", ["/spec/decode/replicas"])


def test_an_ignored_count_is_in_git_and_a_role_with_autoscaling_has_none() -> None:
    (model,) = kustomized("clusters/production")
    assert model["spec"]["decode"]["replicas"] == 2
    assert "replicas" not in model["spec"]["parameter"]
    assert "autoscaling" in model["spec"]["parameter"]


@pytest.mark.parametrize("name", ["operator", "models"])
def test_a_rolling_sync_selects_every_cluster_once(name: str) -> None:
    item = fleet(name)
    expressions = [expression for step in rolling_steps(item) for expression in step["matchExpressions"]]
    assert [value for expression in expressions for value in expression["values"]] == list(revisions(name))
    labels = item["spec"]["template"]["metadata"]["labels"]
    assert {expression["key"] for expression in expressions} == set(labels) == {"stage"}


@pytest.mark.parametrize("name", ["operator", "models"])
def test_a_rolling_sync_prunes(name: str) -> None:
    """It takes `prune` from the automated policy, which it removes. Without it, Argo CD 3.1 syncs again and again."""
    assert sources(fleet(name))["syncPolicy"]["automated"] == {"prune": True}


def test_production_clusters_follow_tags_and_canary_clusters_a_branch() -> None:
    """RollingSync does not order Applications that find the same commit at different times."""
    promoted = named(EXAMPLES / "flux" / "promoted.yaml", "GitRepository", "promoted")["spec"]["ref"]["semver"]
    assert revisions("models") == {"canary": "main", "production": promoted}


def fleet(name: str) -> Object:
    """An ApplicationSet."""
    (item,) = documents(EXAMPLES / "argocd" / "fleet" / f"{name}.yaml")
    return item


def rolling_steps(item: Object) -> list[Object]:
    steps: list[Object] = item["spec"]["strategy"]["rollingSync"]["steps"]
    return steps


def revisions(name: str) -> dict[str, str]:
    """What the clusters of each stage follow: a version of the chart, or a revision in Git."""
    item = fleet(name)
    value = sources(item)["source"]["targetRevision"].removeprefix("{{.values.").removesuffix("}}")
    clusters = [generator["clusters"] for generator in item["spec"]["generators"]]
    return {entry["selector"]["matchLabels"]["stage"]: entry["values"][value] for entry in clusters}


def test_renovate_raises_the_chart_of_canary_clusters_alone() -> None:
    (manager,) = json.loads((EXAMPLES / "renovate.json").read_text(encoding="utf-8"))["customManagers"]
    (pattern,) = (entry.strip("/") for entry in manager["managerFilePatterns"])
    file = EXAMPLES / "argocd" / "fleet" / "operator.yaml"
    assert re.search(pattern, str(file.relative_to(EXAMPLES)))
    (found,) = (entry.replace("(?<", "(?P<") for entry in manager["matchStrings"])
    text = file.read_text(encoding="utf-8")
    (match,) = re.finditer(found, text)
    assert match["currentValue"] == revisions("operator")["canary"]
    assert "stage: production" in text[match.end() :]
    source = sources(fleet("operator"))["source"]
    assert manager["depNameTemplate"] == f"{source['repoURL']}/{source['chart']}"


def test_image_updates_end_in_the_same_line() -> None:
    lines = (EXAMPLES / "models" / "kustomization.yaml").read_text(encoding="utf-8").splitlines()
    (line,) = (line for line in lines if "newTag" in line)
    policy = json.loads(line.partition("# ")[2])["$imagepolicy"]
    flux = EXAMPLES / "flux" / "images.yaml"
    assert policy == "flux-system:vllm:tag"
    assert named(flux, "ImagePolicy", "vllm")["metadata"]["namespace"] == "flux-system"
    assert named(flux, "ImageUpdateAutomation", "models")["spec"]["update"]["path"] == "./models"
    updater = named(EXAMPLES / "argocd" / "image-updater.yaml", "ImageUpdater", "models")["spec"]
    (reference,) = updater["applicationRefs"]
    assert reference["writeBackConfig"]["gitConfig"]["writeBackTarget"] == "kustomization:/models"
    (image,) = reference["images"]
    (listed,) = documents(EXAMPLES / "models" / "kustomization.yaml")[0]["images"]
    repository = named(flux, "ImageRepository", "vllm")["spec"]["image"]
    assert {image["manifestTargets"]["kustomize"]["name"], repository} == {listed["name"]}


def test_every_file_is_on_the_page() -> None:
    page = (EXAMPLES.parents[1] / "docs" / "gitops.md").read_text(encoding="utf-8")
    files = [file for file in EXAMPLES.rglob("*") if file.is_file()]
    assert [str(file.relative_to(EXAMPLES)) for file in files if file.name not in page] == []
