"""Take images straight out of buildah's storage, without archive and without unpacking.

buildah and containerd both keep an image as one folder a layer, in the same form (overlayfs). So a layer becomes a
snapshot of containerd by hard links, in seconds for gigabytes, and takes no disk; only the small manifest and
configuration are imported. The packed layers, which nobody reads once they are unpacked, are files with holes.
"""

import base64
import hashlib
import json
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.cluster import containerd
from e2e.cluster.commands import run
from e2e.cluster.containerd import Containerd
from e2e.cluster.errors import ClusterError

DEFAULT_STORAGE = Path("/var/lib/containers/storage")
# Keeps a layer that belongs to no image yet from being collected as garbage; ctr itself sets it on snapshots.
_KEEP = "containerd.io/gc.root"
_TRIES = 5


@dataclass(frozen=True)
class Image:
    """An image in buildah's storage."""

    name: str
    manifest: bytes
    configuration: bytes
    folders: tuple[Path, ...]  # one a layer, the lowest first

    @property
    def digest(self) -> str:
        """What tells this build of the image from every other."""
        return _digest(self.manifest)


def find(name: str, storage: Path) -> Image:
    """Find an image by its full name, such as `localhost/router:1`.

    Raises:
        ClusterError: There is none.
    """
    images: list[dict[str, Any]] = _read_json(storage / "overlay-images" / "images.json")
    for image in images:
        if name in image.get("names", ()):
            return _image(name, image, storage)
    known = sorted(known for image in images for known in image.get("names", ()))
    raise ClusterError(f"buildah has no image {name} in {storage}; it has: {', '.join(known) or 'none'}.")


def load(image: Image, target: Containerd) -> None:
    """Put an image into a containerd."""
    manifest, configuration = json.loads(image.manifest), json.loads(image.configuration)
    layers, parts = manifest["layers"], configuration["rootfs"]["diff_ids"]
    if not len(layers) == len(parts) == len(image.folders):
        raise ClusterError(f"buildah's image {image.name} has layers that don't match its manifest: build it again.")
    chain, chains = "", []
    for folder, layer, part in zip(image.folders, layers, parts, strict=True):
        parent, chain = chain, _digest(f"{chain} {part}".encode()) if chain else part
        _ensure_snapshot(target, folder, chain, parent)
        _ensure_packed_layer(target, layer["digest"], layer["size"])
        chains.append(chain)
    _import_description(target, image)
    for chain, layer in zip(chains, layers, strict=True):  # from now on they live as long as the image
        target.ctr("snapshots", "label", chain, f"{_KEEP}=")
        target.ctr("content", "label", layer["digest"], f"{_KEEP}=")


def _image(name: str, image: dict[str, Any], storage: Path) -> Image:
    data = storage / "overlay-images" / image["id"]
    manifest = (data / "manifest").read_bytes()
    digest = json.loads(manifest)["config"]["digest"]
    configuration = (data / f"={base64.b64encode(digest.encode()).decode()}").read_bytes()
    layers = {layer["id"]: layer for layer in _read_json(storage / "overlay-layers" / "layers.json")}
    folders = []
    layer = image.get("layer")
    while layer:
        folders.append(storage / "overlay" / layer / "diff")
        layer = layers[layer].get("parent")
    return Image(name, manifest, configuration, tuple(reversed(folders)))


def _read_json(path: Path) -> Any:
    if not path.exists():
        raise ClusterError(f"{path} does not exist: buildah must run as root and with its overlay driver.")
    return json.loads(path.read_text())


def _ensure_snapshot(target: Containerd, folder: Path, chain: str, parent: str) -> None:
    if target.succeeds("snapshots", "info", chain):
        return
    draft = f"loading-{chain}"
    if target.succeeds("snapshots", "info", draft):  # left by a run that was killed
        target.ctr("snapshots", "remove", draft)
    target.ctr("snapshots", "prepare", draft, *([parent] if parent else []))
    mount = target.ctr("snapshots", "mounts", "/", draft)
    place = re.search(r"upperdir=([^,\s]+)", mount) or re.search(r"-t bind (\S+)", mount)
    if place is None:
        raise ClusterError(f"containerd describes a snapshot in an unknown way: {mount}")
    same_disk = folder.stat().st_dev == Path(place[1]).stat().st_dev
    run(["cp", "--archive", "--link" if same_disk else "--reflink=auto", f"{folder}/.", place[1]], timeout=600)
    target.ctr("snapshots", "commit", chain, draft)


def _ensure_packed_layer(target: Containerd, digest: str, size: int) -> None:
    """Make containerd believe that it has the packed layer: a file of the right name and size, which is one hole."""
    for _ in range(_TRIES):
        if digest not in target.ctr("content", "list", "--quiet").split():
            _ingest_hole(target, digest, size)
        # Until it has this label, a garbage collection that happens to run now takes it away again.
        if target.succeeds("content", "label", digest, f"{_KEEP}=loading"):
            return
    raise ClusterError(f"containerd removed layer {digest} {_TRIES} times while it was loaded: try again.")


def _ingest_hole(target: Containerd, digest: str, size: int) -> None:
    blob = target.blobs / digest.removeprefix("sha256:")
    if not blob.exists():
        blob.parent.mkdir(parents=True, exist_ok=True)
        with blob.open("wb") as file:
            file.truncate(size)
    with blob.open("rb") as content:
        expected = ("--expected-digest", digest, "--expected-size", str(size))
        target.ctr("content", "ingest", *expected, f"loading-{digest}", stdin=content)


def _import_description(target: Containerd, image: Image) -> None:
    """Import manifest and configuration; as the layers are there already, containerd unpacks nothing."""
    digest = json.loads(image.manifest)["config"]["digest"]
    entry = {
        "mediaType": json.loads(image.manifest).get("mediaType", "application/vnd.oci.image.manifest.v1+json"),
        "digest": image.digest,
        "size": len(image.manifest),
        "annotations": {"io.containerd.image.name": image.name},
    }
    files = {
        "oci-layout": json.dumps({"imageLayoutVersion": "1.0.0"}).encode(),
        "index.json": json.dumps({"schemaVersion": 2, "manifests": [entry]}).encode(),
        f"blobs/sha256/{image.digest.removeprefix('sha256:')}": image.manifest,
        f"blobs/sha256/{digest.removeprefix('sha256:')}": image.configuration,
    }
    with tempfile.NamedTemporaryFile(suffix=".tar") as archive:
        archive.write(containerd.tar(files))
        archive.flush()
        target.import_archive(Path(archive.name))


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
