"""Images without a registry: loaded once into a store, and shared by all nodes.

A containerd that runs only while images are loaded fills the store. A new node's containerd starts on copies of the
store's databases and on links to its layers, which never change: a second node costs no time and no disk.
"""

import hashlib
import json
import platform
import shutil
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

import click

from e2e.cluster import build, buildah, containerd, paths
from e2e.cluster.commands import run
from e2e.cluster.containerd import Containerd
from e2e.cluster.errors import ClusterError
from e2e.cluster.files import locked, write_atomically
from e2e.cluster.spec import ClusterSpec

PAUSE = "localhost/pdinference/pause:1"
COREDNS = "localhost/pdinference/coredns:1"
PROBE = "localhost/pdinference/probe:1"
_OWN_IMAGES = {PAUSE: ("tiny", "pause"), PROBE: ("tiny", "probe"), COREDNS: ("coredns", "coredns")}

_LOADED = "loaded.json"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}  # the kernel's names to those of images


class Source:
    """Images to be loaded, each with a digest that tells one build of it from another."""

    def __init__(self, contents: dict[str, str], load: Callable[[Containerd], None], size: int) -> None:
        self.contents = contents
        self.load = load
        self.size = size  # bytes of disk that loading takes at most


def find(image: str | Path, storage: Path = buildah.DEFAULT_STORAGE) -> Source:
    """An image by the name that buildah has built it under on this machine, or by the file name of an archive.

    Raises:
        ClusterError: It is neither.
    """
    return from_archive(Path(image)) if Path(image).is_file() else from_buildah(str(image), storage)


def from_archive(archive: Path) -> Source:
    """Images in a docker or OCI archive.

    Raises:
        ClusterError: It is none.
    """

    def load(target: Containerd) -> None:
        target.import_archive(archive)
        target.free_packed_layers()

    return Source(_contents(archive), load, 2 * archive.stat().st_size)


def from_buildah(name: str, storage: Path = buildah.DEFAULT_STORAGE) -> Source:
    """An image that buildah has built on this machine.

    Raises:
        ClusterError: It has not.
    """
    image = buildah.find(name, storage)
    return Source({name: image.digest}, lambda target: buildah.load(image, target), 0)


def store(source: Source) -> None:
    """Put images into the store, unless they are there."""
    with locked(_lock()):
        if _missing(_root(), source):
            _check_disk(source)
            click.echo(f"Loading {', '.join(source.contents)}", err=True)
            with containerd.short_lived(paths.image_store(), _root()) as target:
                source.load(target)
                _remember(_root(), source)
                _collect_garbage(target, next(iter(source.contents)))


def load_into(target: Containerd, source: Source) -> None:
    """Put images into a node that runs, unless they are there."""
    if _missing(target.root, source):
        source.load(target)
        _remember(target.root, source)


def store_own() -> None:
    """Put the images that every cluster with nodes needs into the store."""
    for name, (tool, program) in _OWN_IMAGES.items():
        folder = build.TOOLS[tool].folder
        store(Source({name: folder.name}, _own_loader(name, folder / program), 0))


def seed(root: Path) -> None:
    """Make a node's containerd root from the store, unless the node has one."""
    if root.exists():
        return
    draft = root.with_name(f"{root.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)
    draft.parent.mkdir(parents=True, exist_ok=True)
    with locked(_lock()):
        _copy_without_layers(_root(), draft)
        (draft / containerd.SNAPSHOTS).mkdir()
        for snapshot in (_root() / containerd.SNAPSHOTS).iterdir():
            (draft / containerd.SNAPSHOTS / snapshot.name).symlink_to(snapshot)
    draft.rename(root)


def delete_store() -> None:
    """Remove all images; no node may run."""
    with locked(_lock()):
        shutil.rmtree(paths.image_store(), ignore_errors=True)
    _lock().unlink(missing_ok=True)


def write_archive(archive: Path, name: str, program: Path) -> None:
    """Write an image that consists of one static binary."""
    layer = containerd.tar({program.name: program.read_bytes()})
    config = json.dumps(
        {
            "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
            "os": "linux",
            "config": {"Entrypoint": [f"/{program.name}"]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
        }
    ).encode()
    config_name = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = json.dumps([{"Config": config_name, "RepoTags": [name], "Layers": ["layer.tar"]}]).encode()
    archive.write_bytes(containerd.tar({config_name: config, "layer.tar": layer, "manifest.json": manifest}))


def _root() -> Path:
    return paths.image_store() / "root"


def _lock() -> Path:
    return paths.state() / ".images.lock"


def _own_loader(name: str, program: Path) -> Callable[[Containerd], None]:
    def load(target: Containerd) -> None:
        with tempfile.TemporaryDirectory() as scratch:
            archive = Path(scratch) / "image.tar"
            write_archive(archive, name, program)
            from_archive(archive).load(target)

    return load


def _copy_without_layers(source: Path, target: Path) -> None:
    """Copy databases and small files; packed layers are holes, so that copying them takes neither time nor disk."""
    target.mkdir()
    for path in source.iterdir():
        if path.is_dir() and path.name != containerd.SNAPSHOTS.name:
            _copy_without_layers(path, target / path.name)
        elif path.is_file():
            run(["cp", "--archive", "--sparse=always", path, target])


def _collect_garbage(target: Containerd, image: str) -> None:
    """Remove what no image needs any more, unless nodes still link to it; deleting a name in step triggers it."""
    if any(cluster.nodes for cluster in ClusterSpec.load_all()):
        return
    target.ctr("images", "tag", "--force", image, "localhost/garbage:1")
    target.ctr("images", "remove", "--sync", "localhost/garbage:1")


def _contents(archive: Path) -> dict[str, str]:
    """The names of an archive's images, each with a digest of the list that names all its parts."""
    try:
        with tarfile.open(archive, "r:") as tar:
            return _docker_contents(tar) or _oci_contents(tar)
    except (OSError, tarfile.TarError, KeyError, ValueError) as error:
        raise ClusterError(
            f"{archive} is no image archive that can be read: {error}. Make one with "
            "`buildah push IMAGE docker-archive:FILE:NAME` (uncompressed)."
        ) from error


def _docker_contents(tar: tarfile.TarFile) -> dict[str, str]:
    if "manifest.json" not in tar.getnames():
        return {}
    images = json.loads(_read(tar, "manifest.json"))
    return {name: image["Config"] for image in images for name in image["RepoTags"] or ()}


def _oci_contents(tar: tarfile.TarFile) -> dict[str, str]:
    index = json.loads(_read(tar, "index.json"))
    return {_oci_name(entry["annotations"]): entry["digest"] for entry in index["manifests"]}


def _oci_name(annotations: dict[str, str]) -> str:
    return annotations.get("io.containerd.image.name") or annotations["org.opencontainers.image.ref.name"]


def _read(tar: tarfile.TarFile, name: str) -> bytes:
    member = tar.extractfile(name)
    if member is None:
        raise KeyError(name)
    return member.read()


def _missing(root: Path, source: Source) -> bool:
    return not source.contents.items() <= _read_loaded(root).items()


def _read_loaded(root: Path) -> dict[str, str]:
    path = root / _LOADED
    found: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
    return found


def _remember(root: Path, source: Source) -> None:
    write_atomically(root / _LOADED, json.dumps({**_read_loaded(root), **source.contents}, indent=2))


def _check_disk(source: Source) -> None:
    """Unpacking an archive needs about twice its size for a while: the packed layers and their files."""
    free = shutil.disk_usage(paths.state()).free
    if free < source.size:
        raise ClusterError(
            f"{', '.join(source.contents)} needs {source.size / 1e9:.0f} GB of disk to be unpacked; "
            f"{paths.state()} has {free / 1e9:.0f} GB left. "
            "Free some, or set PDINFERENCE_STATE to a folder on a larger disk."
        )
