"""Images are pinned by what a real registry answers."""

import hashlib
import re
import subprocess
import tarfile
import urllib.request
from pathlib import Path

import pytest

from e2e import digests
from e2e.cluster.build import binary
from e2e.cluster.errors import ClusterError

MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"


def push(reference: str, content: Path) -> None:
    """Push an image that holds one file."""
    layer = content.with_suffix(".tar")
    with tarfile.open(layer, "w") as tar:
        tar.add(content, content.name)
    subprocess.run([binary("crane"), "append", f"--new_tag={reference}", f"--new_layer={layer}"], check=True)


def manifest(reference: str) -> bytes:
    """The digest in the registry, read without crane."""
    address, _, rest = reference.partition("/")
    repository, _, tag = rest.partition(":")
    request = urllib.request.Request(f"http://{address}/v2/{repository}/manifests/{tag}", headers={"Accept": MANIFEST})
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - loopback
        return bytes(answer.read())


def test_a_tag_is_pinned_and_pinned_anew_once_it_moved(registry: str, tmp_path: Path) -> None:
    repository = f"{registry}/team/base"
    build, other = tmp_path / "Dockerfile", tmp_path / "settings.py"
    build.write_text(f"ARG BASE={repository}:1.0-slim\nFROM $BASE\n")
    other.write_text(f'IMAGE = "{repository}:1.0-slim@sha256:{"0" * 64}"\nELSE = "{repository}/more:2"\n')
    content = tmp_path / "content"
    for text in ("one", "two"):
        content.write_text(text)
        push(f"{repository}:1.0-slim", content)
        pinned = f"{repository}:1.0-slim@sha256:{hashlib.sha256(manifest(f'{repository}:1.0-slim')).hexdigest()}"
        assert digests.update({repository: [build, other]}) == {pinned.partition("@")[0]: pinned.partition("@")[2]}
        assert build.read_text() == f"ARG BASE={pinned}\nFROM $BASE\n"
        assert other.read_text() == f'IMAGE = "{pinned}"\nELSE = "{repository}/more:2"\n'


def test_no_file_changes_unless_every_digest_is_known(registry: str, tmp_path: Path) -> None:
    content = tmp_path / "content"
    content.write_text("one")
    push(f"{registry}/known:1", content)
    file = tmp_path / "Dockerfile"
    file.write_text(f"FROM {registry}/known:1\nFROM {registry}/gone:1\n")
    before = file.read_text()
    with pytest.raises(ClusterError, match="gone:1"):
        digests.update({f"{registry}/known": [file], f"{registry}/gone": [file]})
    assert file.read_text() == before


def test_each_image_that_is_taken_from_others_is_found_where_it_is_named() -> None:
    for repository, files in digests.PINNED.items():
        assert files
        for file in files:
            assert re.search(rf"{re.escape(repository)}:[\w.-]+", file.read_text(encoding="utf-8")), file
