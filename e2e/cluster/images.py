"""Images without a registry: unpacked once, then shared by all nodes.

A containerd that runs only while images are loaded unpacks them into the image store. A new node's containerd starts on
a copy of the store made of hard links: an image's files never change, so a second node costs no time and no disk. Only
the databases are real copies.
"""

import hashlib
import io
import json
import shutil
import socket
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from e2e.cluster import build, paths
from e2e.cluster.commands import run, succeeds
from e2e.cluster.errors import ClusterError
from e2e.cluster.files import locked, write_atomically
from e2e.cluster.waiting import tail, wait_until

PAUSE = "localhost/pdinference/pause:1"
COREDNS = "localhost/pdinference/coredns:1"
PROBE = "localhost/pdinference/probe:1"
_OWN_IMAGES = {PAUSE: ("tiny", "pause"), PROBE: ("tiny", "probe"), COREDNS: ("coredns", "coredns")}

_LOADED = "loaded.json"
_SMALL_BLOB = 1 << 20
_IMPORT_SECONDS = 900


def prepare_own() -> None:
    """Put the images that every cluster with nodes needs into the store."""
    with locked(_lock()):
        loaded = _read_loaded(_root())
        missing = {
            name: key for name, key in _OWN_IMAGES.items() if loaded.get(name) != build.TOOLS[key[0]].folder.name
        }
        if not missing:
            return
        with _containerd() as address, tempfile.TemporaryDirectory() as scratch:
            for name, (tool, program) in missing.items():
                archive = Path(scratch) / f"{program}.tar"
                write_archive(archive, name, build.binary(program))
                _import(address, archive)
                _remember(_root(), {name: build.TOOLS[tool].folder.name})


def load(archive: Path) -> list[str]:
    """Put an archive's images into the store, unless they are there, and return their names.

    Raises:
        ClusterError: It is no such archive, or it does not fit on the disk.
    """
    contents = _contents(archive)
    with locked(_lock()):
        if not _is_loaded(_root(), contents):
            _check_disk(archive)
            click.echo(f"Unpacking {', '.join(contents)}", err=True)
            with _containerd() as address:
                _import(address, archive)
            _free_packed_layers()
            _remember(_root(), contents)
    return list(contents)


def load_into(address: Path, root: Path, archive: Path) -> None:
    """Put an archive's images into a node that runs, unless they are there.

    This unpacks them once more; images of several gigabytes are better loaded before `up`.
    """
    contents = _contents(archive)
    if not _is_loaded(root, contents):
        _import(address, archive)
        _remember(root, contents)


def seed(root: Path) -> None:
    """Make a node's containerd root from the store, unless the node has one."""
    if root.exists():
        return
    draft = root.with_name(f"{root.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)
    draft.parent.mkdir(parents=True, exist_ok=True)
    with locked(_lock()):
        run(["cp", "--archive", "--link", _root(), draft], timeout=300)
        for database in _root().rglob("*.db"):
            run(["cp", "--archive", "--remove-destination", database, draft / database.relative_to(_root())])
    draft.rename(root)


def delete_store() -> None:
    """Remove all images that no node uses."""
    with locked(_lock()):
        shutil.rmtree(paths.image_store(), ignore_errors=True)
    _lock().unlink(missing_ok=True)


def connectable(address: Path) -> bool:
    """Say whether somebody listens on a unix socket."""
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(address)) == 0


def _root() -> Path:
    return paths.image_store() / "root"


def _lock() -> Path:
    return paths.state() / ".images.lock"


@contextmanager
def _containerd() -> Iterator[Path]:
    """Run the store's containerd for a while; without the plugin for Kubernetes, it starts at once."""
    folder = paths.image_store()
    folder.mkdir(parents=True, exist_ok=True)
    address, log = folder / "containerd.sock", folder / "containerd.log"
    config = folder / "containerd.toml"
    config.write_text(
        f'version = 2\nroot = "{_root()}"\nstate = "{folder / "state"}"\n'
        f'disabled_plugins = ["io.containerd.grpc.v1.cri"]\n[grpc]\naddress = "{address}"\n'
    )
    address.unlink(missing_ok=True)
    with log.open("wb") as output:
        process = subprocess.Popen(["containerd", "--config", str(config)], stdout=output, stderr=output)
    try:
        wait_until(
            "the image store", lambda: connectable(address) and succeeds(_ctr(address, "version")), timeout=30, log=log
        )
        yield address
    except ClusterError as error:
        raise ClusterError(f"{error}{tail(log)}") from error
    finally:
        process.terminate()
        process.wait()


def _ctr(address: Path, *words: str | Path) -> list[str | Path]:
    return ["ctr", "--address", address, "--namespace", "k8s.io", *words]


def _import(address: Path, archive: Path) -> None:
    run(_ctr(address, "images", "import", archive), timeout=_IMPORT_SECONDS)


def _free_packed_layers() -> None:
    """Give back the disk space of the packed layers, which nobody reads once they are unpacked.

    containerd refuses an image whose packed layers are missing, but only looks whether the files exist: so they keep
    their names and sizes, and become holes.
    """
    for blob in (_root() / "io.containerd.content.v1.content" / "blobs" / "sha256").iterdir():
        status = blob.stat()
        if status.st_size > _SMALL_BLOB and status.st_blocks:
            run(["fallocate", "--punch-hole", "--length", str(status.st_size), blob])


def _contents(archive: Path) -> dict[str, str]:
    """The names of an archive's images, each with a digest of the list that names all their parts."""
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


def _is_loaded(root: Path, contents: dict[str, str]) -> bool:
    return contents.items() <= _read_loaded(root).items()


def _read_loaded(root: Path) -> dict[str, str]:
    path = root / _LOADED
    found: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
    return found


def _remember(root: Path, contents: dict[str, str]) -> None:
    write_atomically(root / _LOADED, json.dumps({**_read_loaded(root), **contents}, indent=2))


def _check_disk(archive: Path) -> None:
    """Unpacking needs about twice the archive's size for a while: the packed layers and their files."""
    needed = 2 * archive.stat().st_size
    free = shutil.disk_usage(paths.state()).free
    if free < needed:
        raise ClusterError(
            f"{archive} needs {needed / 1e9:.0f} GB of disk to be unpacked; {paths.state()} has {free / 1e9:.0f} GB "
            "left. Free some, or set PDINFERENCE_STATE to a folder on a larger disk."
        )


def write_archive(archive: Path, name: str, program: Path) -> None:
    """Write an image that consists of one static binary."""
    layer = _tar({program.name: program.read_bytes()})
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Entrypoint": [f"/{program.name}"]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
        }
    ).encode()
    config_name = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = json.dumps([{"Config": config_name, "RepoTags": [name], "Layers": ["layer.tar"]}]).encode()
    archive.write_bytes(_tar({config_name: config, "layer.tar": layer, "manifest.json": manifest}))


def _tar(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o755
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()
