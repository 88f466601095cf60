"""A release in a real registry: what was published is what a user installs."""

import hashlib
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e import artifact_hub, charts, images, olm, provenance, publish, release
from e2e.cluster import paths
from e2e.cluster.build import binary
from pdinference.api import names
from tests.charts.helm import rendered

Json = dict[str, Any]
NUMBER = charts.version()
CHART = f"{publish.CHARTS}/{charts.CHART.name}"
NOTE = "- **A router of our own.** It is small."
FILES = {
    f"{charts.CHART.name}-{NUMBER}.tgz", "crds.yaml", "install.yaml", "digests.yaml", "notes.md", release.CHECKSUMS,
    f"pdinference-{NUMBER}-py3-none-any.whl", f"pdinference_advise-{NUMBER}-py3-none-any.whl",
    "operator-python.cdx.json", "development.cdx.json", "image-operator.cdx.json",
    f"{charts.CHART.name}-bundle-{NUMBER}.tgz", olm.POLICIES,
    "image-operator.slsa.json", "chart.slsa.json", "olm-bundle.slsa.json",
}  # fmt: skip
STATUS = """\
Package: libc6
Status: install ok installed
Architecture: {architecture}
Version: 1
Maintainer: x
Description: x
"""


@pytest.fixture
def changelog(tmp_path: Path) -> Path:
    """One that has notes of this version."""
    file = tmp_path / "CHANGELOG.md"
    file.write_text(f"# Changelog\n\n## {NUMBER} - 2026-11-24\n\n### Added\n\n{NOTE}\n\n## 0.0.9\n\n- Older.\n")
    return file


@pytest.fixture
def signed(tmp_path: Path) -> tuple[Path, list[str]]:
    """A file with what was to be signed, and a signing program that writes it."""
    file, program = tmp_path / "signed", tmp_path / "sign"
    program.write_text(f'#!/bin/sh\necho "$@" >> {file}\n')
    program.chmod(0o755)
    return file, [str(program), "--yes"]


def crane(*words: str) -> str:
    return subprocess.run([binary("crane"), *words], capture_output=True, text=True, check=True).stdout


def configuration(reference: str) -> Json:
    return dict(json.loads(crane("config", "--insecure", reference)))


def first_layers(provenance_file: Path) -> dict[str, str]:
    """What the provenance says of them, by architecture."""
    found = json.loads(provenance_file.read_text())["buildDefinition"]["resolvedDependencies"]
    pins = {each["name"] for each in found}
    assert pins >= {"source", "uv.lock", "images/uv-requirements.txt"}
    return {
        each["annotations"]["architecture"]: f"sha256:{each['digest']['sha256']}"
        for each in found
        if each["name"].startswith("first layer")
    }


def attested(reference: str, file: Path) -> list[str]:
    """What the signing program of `signed` gets for an image with provenance and bill of materials."""
    return [
        f"--yes {reference}",
        f"--yes -a --type slsaprovenance1 --predicate {file}.slsa.json {reference}",
        f"--yes -a --type cyclonedx --predicate {file}.cdx.json {reference}",
    ]


def helm_show(chart: Path) -> str:
    return subprocess.run([binary("helm"), "show", "chart", chart], capture_output=True, text=True, check=True).stdout


def metadata(repository: str) -> str:
    """What Artifact Hub finds there: one layer of its own type."""
    manifest = json.loads(crane("manifest", "--insecure", f"{repository}:artifacthub.io"))
    (layer,) = manifest["layers"]
    assert manifest["config"]["mediaType"] == "application/vnd.cncf.artifacthub.config.v1+yaml"
    assert layer["mediaType"] == "application/vnd.cncf.artifacthub.repository-metadata.layer.v1.yaml"
    return crane("blob", "--insecure", f"{repository}@{layer['digest']}")


def test_a_release_is_published_once_and_whole(
    registry: str, changelog: Path, signed: tuple[Path, list[str]], tmp_path: Path
) -> None:
    team, folder = f"{registry}/team", tmp_path / "release"
    file, sign = signed
    digests = publish.publish(team, folder, names=["operator"], changelog=changelog, sign=sign, attest=[*sign, "-a"])

    operator, chart, bundle = f"{team}/operator:{NUMBER}", f"{team}/{CHART}:{NUMBER}", f"{team}/{olm.IMAGE}:{NUMBER}"
    assert digests == {each: crane("digest", "--insecure", each).strip() for each in (operator, chart, bundle)}
    image, of_chart, of_bundle = (f"{each.rpartition(':')[0]}@{digest}" for each, digest in digests.items())
    assert file.read_text().splitlines() == [
        *(f"--yes {each}" for each in (image, of_chart, of_bundle)),
        f"--yes -a --type slsaprovenance1 --predicate {folder}/image-operator.slsa.json {image}",
        f"--yes -a --type cyclonedx --predicate {folder}/image-operator.cdx.json {image}",
        f"--yes -a --type slsaprovenance1 --predicate {folder}/chart.slsa.json {of_chart}",
        f"--yes -a --type slsaprovenance1 --predicate {folder}/olm-bundle.slsa.json {of_bundle}",
    ]
    assert (
        configuration(operator)["config"]["Labels"].items()
        >= {
            "org.opencontainers.image.version": NUMBER,
            "org.opencontainers.image.licenses": "Apache-2.0",
            **provenance.labels(),
        }.items()
    )
    (base, *_) = configuration(operator)["rootfs"]["diff_ids"]
    assert first_layers(folder / "image-operator.slsa.json") == {images.OWN: base}
    assert configuration(bundle)["config"]["Labels"].items() >= {**olm.LABELS, **provenance.labels()}.items()
    # The specification of OCI requires both.
    assert (configuration(bundle)["os"], configuration(bundle)["architecture"]) == ("linux", "amd64")
    (layer,) = json.loads(crane("manifest", "--insecure", bundle))["layers"]
    assert layer["digest"] == f"sha256:{hashlib.sha256(olm.packed(folder, NUMBER).read_bytes()).hexdigest()}"

    assert {each.name for each in folder.iterdir()} == FILES
    subprocess.run(["sha256sum", "--check", "--strict", release.CHECKSUMS], cwd=folder, check=True)
    assert (folder / "notes.md").read_text() == f"### Added\n\n{NOTE}\n"

    words = ["pull", f"oci://{team}/{CHART}", "--version", NUMBER, "--plain-http", "--destination", str(tmp_path)]
    subprocess.run([binary("helm"), *words], check=True)
    pulled = rendered(chart=tmp_path / f"{charts.CHART.name}-{NUMBER}.tgz")
    assert pulled == rendered({"image": {"repository": f"{team}/operator"}})
    annotations = yaml.safe_load(helm_show(tmp_path / f"{charts.CHART.name}-{NUMBER}.tgz"))["annotations"]
    assert yaml.safe_load(annotations["artifacthub.io/changes"]) == [
        {"kind": "added", "description": "A router of our own."}
    ]
    assert [each["image"] for each in yaml.safe_load(annotations["artifacthub.io/images"])] == [operator]
    assert metadata(f"{team}/{CHART}") == artifact_hub.METADATA.read_text(encoding="utf-8")
    assert f"image: {operator}" in (folder / "install.yaml").read_text().replace('"', "")

    with pytest.raises(charts.ReleaseError, match=r"operator:.*A released version is never replaced"):
        publish.publish(team, folder, names=["operator"], changelog=changelog)


@pytest.fixture
def stand_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, images.Image]]:
    """The operator's images for both architectures, in a storage of the test's own.

    Each has one package of Debian and no program: to build the real ones takes an emulator.
    """
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / "bin").symlink_to(paths.binaries())
    monkeypatch.setenv("PDINFERENCE_CACHE", str(cache))
    operator = images.IMAGES["operator"]
    variants = {each.architecture: each for each in operator.variants(operator.architectures)}
    for architecture, image in variants.items():
        built_from = tmp_path / architecture
        for path, text in {
            "Dockerfile": "FROM scratch\nCOPY root /\n",
            "root/etc/os-release": "ID=debian\nVERSION_ID=12\n",
            "root/var/lib/dpkg/status": STATUS.format(architecture=architecture),
        }.items():
            (built_from / path).parent.mkdir(parents=True, exist_ok=True)
            (built_from / path).write_text(text)
        storage = [f"--root={cache}/images/storage/root", f"--runroot={cache}/images/storage/run"]
        label = f"--label={images.LABEL}={images.content_hash(image)}"
        command = ["buildah", *storage, "--storage-driver=overlay", "build", f"--arch={architecture}", label]
        subprocess.run([*command, f"--tag={image.reference}", built_from], check=True)
    yield variants
    images.clean()


def test_each_architecture_of_an_image_has_signatures_and_files_of_its_own(
    registry: str,
    changelog: Path,
    signed: tuple[Path, list[str]],
    stand_ins: dict[str, images.Image],
    tmp_path: Path,
) -> None:
    team, folder = f"{registry}/team", tmp_path / "release"
    file, sign = signed
    digests = publish.publish(
        team,
        folder,
        names=["operator"],
        changelog=changelog,
        sign=sign,
        attest=[*sign, "-a"],
        architectures=list(stand_ins),
    )
    operator = f"{team}/operator:{NUMBER}"
    found = json.loads(crane("manifest", "--insecure", operator))["manifests"]
    assert {each["platform"]["architecture"]: each["digest"] for each in found} == {
        each: digests[f"{operator}-{each}"] for each in stand_ins
    }
    signatures = file.read_text().splitlines()
    bases: dict[str, str] = {}
    for architecture, image in stand_ins.items():
        name = f"image-operator-{architecture}"
        by_digest = f"{team}/operator@{digests[f'{operator}-{architecture}']}"
        assert [each for each in signatures if each.endswith(by_digest)] == attested(by_digest, folder / name)
        bill = json.loads((folder / f"{name}.cdx.json").read_text())
        assert bill["metadata"]["component"]["purl"] == f"pkg:oci/operator?arch={architecture}&tag={NUMBER}"
        assert [each["purl"] for each in bill["components"]] == [
            f"pkg:deb/debian/libc6@1?arch={architecture}&distro=debian-12&upstream=libc6"
        ]
        assert configuration(by_digest)["architecture"] == image.architecture
        (bases[architecture],) = configuration(by_digest)["rootfs"]["diff_ids"]
        assert first_layers(folder / f"{name}.slsa.json") == {architecture: bases[architecture]}
    assert len(set(bases.values())) == len(stand_ins)

    of_list = f"{team}/operator@{digests[operator]}"
    provenance_of_list = attested(of_list, folder / "image-operator")[:2]
    assert [each for each in signatures if each.endswith(of_list)] == provenance_of_list
    assert first_layers(folder / "image-operator.slsa.json") == bases
    assert not (folder / "image-operator.cdx.json").exists()


def test_a_version_that_was_pushed_for_one_architecture_alone_is_not_replaced(
    registry: str, changelog: Path, stand_ins: dict[str, images.Image], tmp_path: Path
) -> None:
    """As after an interruption between two pushes."""
    pushed = f"{registry}/team/operator:{NUMBER}-arm64"
    digest = images.push(stand_ins["arm64"], pushed, tls=False)
    with pytest.raises(charts.ReleaseError, match=f"registry has {re.escape(pushed)}"):
        publish.publish(
            f"{registry}/team",
            tmp_path / "release",
            names=["operator"],
            changelog=changelog,
            architectures=list(stand_ins),
        )
    assert crane("digest", "--insecure", pushed).strip() == digest


def test_nothing_is_pushed_for_a_version_without_notes(registry: str, tmp_path: Path) -> None:
    changelog = tmp_path / "CHANGELOG.md"
    changelog.write_text("# Changelog\n\n## Unreleased\n\n- New.\n")
    with pytest.raises(charts.ReleaseError, match=f"has no section for {NUMBER}"):
        publish.publish(f"{registry}/team", tmp_path / "release", names=["operator"], changelog=changelog)
    assert not crane("catalog", "--insecure", registry)


def test_nothing_is_pushed_without_the_images_of_router_and_model(
    registry: str, changelog: Path, tmp_path: Path
) -> None:
    """Here no image is pushed at all: those of an earlier version in a new registry are missing in the same way."""
    team = f"{registry}/team"
    with pytest.raises(charts.ReleaseError) as raised:
        publish.publish(team, tmp_path / "release", names=[], changelog=changelog)
    router = names.DEFAULT_ROUTER_IMAGE.replace(charts.REGISTRY, team)
    assert f"The chart names {router}, which the registry does not have" in str(raised.value)
    assert f"\n  crane copy {names.DEFAULT_ROUTER_IMAGE} {router}" in str(raised.value)
    assert not crane("catalog", "--insecure", registry)


def test_an_image_of_another_version_is_kept(registry: str, changelog: Path, tmp_path: Path) -> None:
    """Two releases may have one vLLM; here the operator's image stands for it, under another tag."""
    images.build_images(["operator"])
    image = images.IMAGES["operator"]
    target = f"{registry}/team/vllm-cpu:{images.IMAGES['vllm-cpu'].tag}"
    before = images.push(image, target, tls=False)
    for each in {names.DEFAULT_OPERATOR_IMAGE, names.DEFAULT_ROUTER_IMAGE, names.DEFAULT_MODEL_IMAGE}:
        images.push(image, each.replace(charts.REGISTRY, f"{registry}/team"), tls=False)
    digests = publish.publish(f"{registry}/team", tmp_path / "release", names=["vllm-cpu"], changelog=changelog)
    assert digests[target] == before
