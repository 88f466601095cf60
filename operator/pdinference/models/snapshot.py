"""One model into one folder: once, whole, and verified, whoever else tries the same at the same time."""

import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from pdinference.models.errors import ModelError, storage
from pdinference.models.files.paths import MANIFEST, NOTES
from pdinference.models.hubs.hub import Hub, RemoteFile
from pdinference.models.limits import no_file_larger_than
from pdinference.models.manifest import KeptFile, Manifest, faults, read_manifest, write_manifest
from pdinference.models.progress import Phase, Progress

_AT_ONCE = 4
_CHUNK = 8 << 20
_GIB = 2**30


def fetch(hub: Hub, folder: Path, progress: Progress) -> Manifest:
    """Make a folder hold a repository.

    What is there already and right is not downloaded again, so an interrupted download goes on with the file that was
    not finished. What once was complete stays as it is: a branch that moves on does not change what pods load.

    Raises:
        ModelError: It could not be had; tells why.
    """
    with storage(folder), _alone(folder, progress):
        manifest = read_manifest(folder)
        if manifest is None or any(faults(folder, manifest)):
            manifest = _download(hub, folder, progress)
        progress.commit, progress.total, progress.phase = manifest.commit, manifest.size, Phase.READY
        return manifest


@contextmanager
def _alone(folder: Path, progress: Progress) -> Iterator[None]:
    """Nobody else writes into the folder meanwhile. Another download may take hours, and is waited for."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder.with_name(f"{folder.name}.lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        progress.phase = Phase.WAITING
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _download(hub: Hub, folder: Path, progress: Progress) -> Manifest:
    progress.phase = Phase.ASKING
    listing = hub.listing()
    wanted = listing.wanted()
    if not any(file.path == "config.json" for file in wanted):
        raise ModelError("NotAModel", "The repository holds no config.json, which vLLM needs: is it the right one?")
    (folder / MANIFEST).unlink(missing_ok=True)
    _remove_others(folder, {file.path for file in wanted})
    progress.commit, progress.total, progress.folder = listing.commit, sum(file.size for file in wanted), folder

    progress.phase = Phase.VERIFYING
    kept = {file.path: digest for file in wanted if (digest := _verified(folder, file))}
    missing = [file for file in wanted if file.path not in kept]
    _require_space(folder, missing)

    progress.phase = Phase.DOWNLOADING
    with no_file_larger_than(max((file.size for file in missing), default=0)):
        _download_all(hub, listing.commit, missing, folder)

    progress.phase = Phase.VERIFYING
    for file in missing:
        kept[file.path] = _require_verified(folder, file)
    _remove_notes(folder)
    manifest = Manifest(listing.commit, tuple(KeptFile(file.path, file.size, kept[file.path]) for file in wanted))
    write_manifest(folder, manifest)
    return manifest


def _download_all(hub: Hub, commit: str, files: Iterable[RemoteFile], folder: Path) -> None:
    """Several files at once; the first that fails ends it, after those that are under way."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        futures = [pool.submit(hub.download, file, commit, folder) for file in files]
        try:
            for future in futures:
                future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _remove_others(folder: Path, wanted: set[str]) -> None:
    """A file of another commit must not stay: vLLM loads every safetensors file that it finds.

    Nor must a link, whose target a download would write into.
    """
    for where, folders, names in os.walk(folder):
        for name in (*folders, *names):
            file = Path(where, name)
            path = file.relative_to(folder)
            stays = name in folders or str(path) in wanted or path.parts[0].startswith(".")
            if file.is_symlink() or not stays or (name in names and not file.is_file()):
                file.unlink(missing_ok=True)


def _remove_notes(folder: Path) -> None:
    """What the hubs' clients keep beside the files: locks, and parts of files that they cannot go on with."""
    for name in NOTES:
        shutil.rmtree(folder / name, ignore_errors=True)


def _require_space(folder: Path, missing: Iterable[RemoteFile]) -> None:
    needed, free = sum(file.size for file in missing), shutil.disk_usage(folder).free
    if needed > free:
        raise ModelError(
            "NoSpace",
            f"The model needs {needed / _GIB:.1f} GiB more, and the volume has {free / _GIB:.1f} GiB. Enlarge the "
            "volume, or remove models from it.",
        )


def _require_verified(folder: Path, file: RemoteFile) -> str:
    digest = _verified(folder, file)
    if digest is None:
        (folder / file.path).unlink(missing_ok=True)
        raise ModelError(
            "Damaged",
            f"{file.path} arrived damaged: size or hash is not what the hub says. It is downloaded again; if that "
            "lasts, suspect a proxy or a mirror.",
        )
    return digest


def _verified(folder: Path, file: RemoteFile) -> str | None:
    """The SHA-256 of a file that is what the hub says; None for one that is not, or is not there."""
    path = folder / file.path
    if path.is_symlink() or not path.is_file() or path.stat().st_size != file.size:
        return None
    sha256 = hashlib.sha256()
    blob = hashlib.sha1(f"blob {file.size}\0".encode(), usedforsecurity=False)  # as git names a content
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            sha256.update(chunk)
            if file.blob:
                blob.update(chunk)
    if file.sha256 and file.sha256 != sha256.hexdigest():
        return None
    if file.blob and file.blob != blob.hexdigest():
        return None
    return sha256.hexdigest()
