"""A release in a real registry: what was published is what a user installs."""

import subprocess
from pathlib import Path

import pytest
import yaml

from e2e import images, publish, release
from e2e.cluster.build import binary
from pdinference.api import names
from tests.charts.helm import rendered

NUMBER = release.version()
CHART = f"{publish.CHARTS}/{release.CHART.name}"
FILES = {
    f"{release.CHART.name}-{NUMBER}.tgz", "crds.yaml", "install.yaml", "digests.yaml", "notes.md", release.CHECKSUMS,
    f"pdinference-{NUMBER}-py3-none-any.whl", f"pdinference_advise-{NUMBER}-py3-none-any.whl",
    "operator-python.cdx.json", "development.cdx.json", "image-operator.cdx.json",
}  # fmt: skip


@pytest.fixture
def changelog(tmp_path: Path) -> Path:
    """One that has notes of this version."""
    file = tmp_path / "CHANGELOG.md"
    file.write_text(f"# Changelog\n\n## {NUMBER} - 2026-11-24\n\n- A router of our own.\n\n## 0.0.9\n\n- Older.\n")
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


def test_a_release_is_published_once_and_whole(
    registry: str, changelog: Path, signed: tuple[Path, list[str]], tmp_path: Path
) -> None:
    team, folder = f"{registry}/team", tmp_path / "release"
    file, sign = signed
    digests = publish.publish(team, folder, names=["operator"], changelog=changelog, sign=sign)

    operator, chart = f"{team}/operator:{NUMBER}", f"{team}/{CHART}:{NUMBER}"
    assert digests == {each: crane("digest", "--insecure", each).strip() for each in (operator, chart)}
    signatures = [f"--yes {each.rpartition(':')[0]}@{digest}" for each, digest in digests.items()]
    assert file.read_text().splitlines() == signatures
    assert (
        yaml.safe_load(crane("config", "--insecure", operator))["config"]["Labels"].items()
        >= {
            "org.opencontainers.image.version": NUMBER,
            "org.opencontainers.image.licenses": "Apache-2.0",
            **publish.provenance(),
        }.items()
    )

    assert {each.name for each in folder.iterdir()} == FILES
    subprocess.run(["sha256sum", "--check", "--strict", release.CHECKSUMS], cwd=folder, check=True)
    assert (folder / "notes.md").read_text() == "- A router of our own.\n"

    words = ["pull", f"oci://{team}/{CHART}", "--version", NUMBER, "--plain-http", "--destination", str(tmp_path)]
    subprocess.run([binary("helm"), *words], check=True)
    pulled = rendered(chart=tmp_path / f"{release.CHART.name}-{NUMBER}.tgz")
    assert pulled == rendered({"image": {"repository": f"{team}/operator"}})
    assert f"image: {operator}" in (folder / "install.yaml").read_text().replace('"', "")

    with pytest.raises(release.ReleaseError, match=r"operator:.*A released version is never replaced"):
        publish.publish(team, folder, names=["operator"], changelog=changelog)


def test_nothing_is_pushed_for_a_version_without_notes(registry: str, tmp_path: Path) -> None:
    changelog = tmp_path / "CHANGELOG.md"
    changelog.write_text("# Changelog\n\n## Unreleased\n\n- New.\n")
    with pytest.raises(release.ReleaseError, match=f"has no section for {NUMBER}"):
        publish.publish(f"{registry}/team", tmp_path / "release", names=["operator"], changelog=changelog)
    assert not crane("catalog", "--insecure", registry)


def test_nothing_is_pushed_without_the_images_of_router_and_model(
    registry: str, changelog: Path, tmp_path: Path
) -> None:
    """Here no image is pushed at all: those of an earlier version in a new registry are missing in the same way."""
    team = f"{registry}/team"
    with pytest.raises(release.ReleaseError) as raised:
        publish.publish(team, tmp_path / "release", names=[], changelog=changelog)
    router = names.DEFAULT_ROUTER_IMAGE.replace(release.REGISTRY, team)
    assert f"The chart names {router}, which the registry does not have" in str(raised.value)
    assert f"\n  crane copy {names.DEFAULT_ROUTER_IMAGE} {router}" in str(raised.value)
    assert not crane("catalog", "--insecure", registry)


def test_an_image_of_another_version_is_kept(registry: str, changelog: Path, tmp_path: Path) -> None:
    """Two releases may have one vLLM; here the operator's image stands for it, under another tag."""
    image = images.build_images(["operator"])["operator"]
    target = f"{registry}/team/vllm-cpu:{images.IMAGES['vllm-cpu'].tag}"
    before = images.push(image.reference, target, tls=False)
    for each in {names.DEFAULT_OPERATOR_IMAGE, names.DEFAULT_ROUTER_IMAGE, names.DEFAULT_MODEL_IMAGE}:
        images.push(image.reference, each.replace(release.REGISTRY, f"{registry}/team"), tls=False)
    digests = publish.publish(f"{registry}/team", tmp_path / "release", names=["vllm-cpu"], changelog=changelog)
    assert digests[target] == before
