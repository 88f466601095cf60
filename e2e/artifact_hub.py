"""What Artifact Hub shows of a release: annotations of the chart, and metadata of its repository in the registry.

The annotations that no other file implies are in the Chart.yaml. Rules: https://artifacthub.io/docs/topics/annotations/helm
and, for the metadata, https://artifacthub.io/docs/topics/repositories/helm-charts.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from e2e import images, listing

METADATA: Final = images.REPOSITORY / "charts" / "artifacthub-repo.yml"
TAG: Final = "artifacthub.io"
"""Where Artifact Hub looks for the metadata, in the chart's repository."""
_CONFIG: Final = "application/vnd.cncf.artifacthub.config.v1+yaml"
_LAYER: Final = "application/vnd.cncf.artifacthub.repository-metadata.layer.v1.yaml"
_MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
_PREFIX: Final = "artifacthub.io"
_CHANGES: Final = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")
_SECTION: Final = re.compile(rf"^### ({'|'.join(_CHANGES)})\b.*\n((?:(?!### ).*\n?)*)", re.MULTILINE)
_HIGHLIGHT: Final = re.compile(r"^- (\*\*(?:.|\n(?!- |\n))*)", re.MULTILINE)
_SENTENCE: Final = re.compile(r".*?\.(?=\s|$)")

Json = dict[str, Any]


def annotations(containers: Sequence[str], notes: str) -> dict[str, str]:
    """Those that other files imply.

    Args:
        containers: The images of an installation.
        notes: The section of the CHANGELOG; empty before there is one.
    """
    found: dict[str, Any] = {
        "crds": [
            {"kind": kind.name, "version": kind.version, "name": kind.crd, "displayName": kind.name}
            | {"description": kind.description}
            for kind in listing.kinds()
        ],
        "crdsExamples": listing.examples(),
        "images": [{"name": _name(each), "image": each} for each in containers],
    }
    texts = {name: yaml.safe_dump(value, sort_keys=False) for name, value in found.items()}
    if changes := list(_changes(notes)):
        texts["changes"] = yaml.safe_dump(changes, sort_keys=False)
        texts["containsSecurityUpdates"] = str(any(change["kind"] == "security" for change in changes)).lower()
    return {f"{_PREFIX}/{name}": text for name, text in texts.items()}


def _name(image: str) -> str:
    return image.rpartition("/")[2].partition("@")[0].replace(":", "-")


def _changes(notes: str) -> Iterator[dict[str, str]]:
    """The first sentence of each entry that begins in bold, which are the ones that matter to most."""
    for kind, text in _SECTION.findall(notes):
        for entry in _HIGHLIGHT.findall(text):
            words = " ".join(entry.replace("**", "").replace("`", "").split())
            sentence = _SENTENCE.match(words)
            yield {"kind": kind.lower(), "description": sentence[0] if sentence else words}


def write_layout(folder: Path) -> Path:
    """Write the metadata as an artifact of OCI, which registries take as they take images.

    Args:
        folder: A new one, for an OCI layout.
    """
    (folder / "blobs" / "sha256").mkdir(parents=True)
    layer = {"mediaType": _LAYER, **_blob(folder, METADATA.read_bytes())}
    layer["annotations"] = {"org.opencontainers.image.title": METADATA.name}
    manifest = {
        "schemaVersion": 2,
        "mediaType": _MANIFEST,
        "config": {"mediaType": _CONFIG, **_blob(folder, b"")},
        "layers": [layer],
    }
    pushed = {"mediaType": _MANIFEST, **_blob(folder, json.dumps(manifest).encode())}
    index = {"schemaVersion": 2, "manifests": [pushed]}
    (folder / "index.json").write_text(json.dumps(index), encoding="utf-8")
    (folder / "oci-layout").write_text(json.dumps({"imageLayoutVersion": "1.0.0"}), encoding="utf-8")
    return folder


def _blob(folder: Path, content: bytes) -> Json:
    digest = hashlib.sha256(content).hexdigest()
    (folder / "blobs" / "sha256" / digest).write_bytes(content)
    return {"digest": f"sha256:{digest}", "size": len(content)}
