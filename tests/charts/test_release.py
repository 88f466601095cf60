"""The files of a release are the chart's objects, complete and of one version."""

import hashlib
import re
import shutil
from pathlib import Path

import pytest
import yaml

from e2e import artifact_hub, charts, images, release
from tests.charts.helm import CHART, rendered


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The files, by name."""
    folder = tmp_path_factory.mktemp("dist") / "release"
    return {file.name: file for file in [*release.write_all(folder), release.write_checksums(folder)]}


def documents(file: Path) -> list[object]:
    return [document for document in yaml.load_all(file.read_text(encoding="utf-8"), yaml.CSafeLoader) if document]


def test_the_manifest_is_the_chart_in_its_namespace(files: dict[str, Path]) -> None:
    namespace, *objects = documents(files["install.yaml"])
    assert namespace == {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": charts.NAMESPACE}}
    assert objects == rendered(release=charts.RELEASE)


def test_the_packed_chart_renders_what_the_chart_does(files: dict[str, Path]) -> None:
    assert rendered(chart=files[f"{CHART.name}-{charts.version()}.tgz"]) == rendered()


def test_the_crds_are_those_of_the_repository(files: dict[str, Path]) -> None:
    stored = [documents(file)[0] for file in sorted((images.REPOSITORY / "crds").glob("*.yaml"))]
    assert documents(files["crds.yaml"]) == stored


def test_every_file_has_its_checksum(files: dict[str, Path]) -> None:
    lines = (line.split("  ") for line in files.pop(release.CHECKSUMS).read_text(encoding="utf-8").splitlines())
    assert {name: digest for digest, name in lines} == {
        name: hashlib.sha256(file.read_bytes()).hexdigest() for name, file in files.items()
    }


def test_what_an_earlier_release_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / "pdinference-operator-0.0.9.tgz").touch()
    assert tmp_path / "pdinference-operator-0.0.9.tgz" not in release.write_all(tmp_path)
    assert not (tmp_path / "pdinference-operator-0.0.9.tgz").exists()


def test_two_versions_are_refused(tmp_path: Path) -> None:
    shutil.copy(images.REPOSITORY / "pyproject.toml", tmp_path)
    shutil.copytree(CHART, tmp_path / "charts" / CHART.name)
    number = charts.version(tmp_path)
    chart = tmp_path / "charts" / CHART.name / "Chart.yaml"
    text = chart.read_text(encoding="utf-8")
    chart.write_text(text.replace(f"appVersion: {number}", "appVersion: 9.9.9"), encoding="utf-8")
    with pytest.raises(charts.ReleaseError, match=r"pyproject\.toml is .*, but in Chart\.yaml appVersion is 9\.9\.9"):
        charts.version(tmp_path)


def test_the_chart_of_another_registry_takes_its_image(tmp_path: Path) -> None:
    release.write_all(tmp_path / "release", "registry.example/team")
    chart = tmp_path / "release" / f"{CHART.name}-{charts.version()}.tgz"
    assert rendered(chart=chart) == rendered({"image": {"repository": "registry.example/team/operator"}})


def test_the_images_of_the_chart_are_those_of_operator_router_and_model(tmp_path: Path) -> None:
    chart = shutil.copytree(CHART, tmp_path / CHART.name)
    values = chart / "values.yaml"
    text = re.sub(r'tag: "[\d.]+"', 'tag: "0.0.9"', values.read_text(encoding="utf-8"))
    values.write_text(text, encoding="utf-8")
    operator = f"{charts.REGISTRY}/operator"
    assert charts.containers(chart) == [f"{operator}:0.0.9", f"{operator}:{charts.version()}"]


def test_the_default_registry_is_that_of_the_chart() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    assert values["image"]["repository"] == f"{charts.REGISTRY}/operator"


def test_notes_are_the_section_of_the_version() -> None:
    changelog = "# Changelog\n\n## 0.2.0 - 2026-12-01\n\n### Added\n\n- This.\n\n## 0.0.9\n\n- That.\n"
    assert release.notes("0.2.0", changelog) == "### Added\n\n- This.\n"
    assert release.notes("0.0.9", changelog) == "- That.\n"
    with pytest.raises(charts.ReleaseError, match=r"no section for 0\.2\."):
        release.notes("0.2", changelog)


def test_changes_for_artifact_hub_are_the_first_sentences_of_entries_in_bold() -> None:
    notes = (
        "### Added: more\n\n- **`spec.a: B` does\n  this**, and that. More of it.\n- A detail.\n\n"
        "### Security\n\n- **A hole.**\n"
    )
    found = artifact_hub.annotations([], notes)
    assert yaml.safe_load(found["artifacthub.io/changes"]) == [
        {"kind": "added", "description": "spec.a: B does this, and that."},
        {"kind": "security", "description": "A hole."},
    ]
    assert found["artifacthub.io/containsSecurityUpdates"] == "true"
    assert "artifacthub.io/changes" not in artifact_hub.annotations([], "")


def test_artifact_hub_shows_each_kind_of_the_api_and_an_example_of_those_that_users_create() -> None:
    found = artifact_hub.annotations(["registry.example:5000/team/operator:1.2.3"], "")
    crds = yaml.safe_load(found["artifacthub.io/crds"])
    assert [(each["kind"], each["version"]) for each in crds] == [
        ("PDBatch", "v1alpha1"), ("PDInference", "v1alpha1"), ("PDScaler", "v1alpha1"),
    ]  # fmt: skip
    examples = yaml.safe_load(found["artifacthub.io/crdsExamples"])
    assert [each["kind"] for each in examples] == ["PDInference", "PDBatch"]
    (image,) = yaml.safe_load(found["artifacthub.io/images"])
    assert image == {"name": "operator-1.2.3", "image": "registry.example:5000/team/operator:1.2.3"}
