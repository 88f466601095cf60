"""Downloads a model to a folder: once, complete and verified, also with concurrent downloads.

Tests: tests/models/test_fetch.py, tests/models/hubs/test_hostile_hub.py, tests/models/hubs/test_model_scope.py
"""

import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from pdinference.models.errors import ModelError, storage
from pdinference.models.files.etags import noted_etag
from pdinference.models.files.paths import MANIFEST, NOTES
from pdinference.models.hubs.hub import Hub, RemoteFile
from pdinference.models.limits import no_file_larger_than
from pdinference.models.manifest import KeptFile, Manifest, faults, read_manifest, write_manifest
from pdinference.models.progress import DownloadProgress, Phase

_AT_ONCE = 4
_CHUNK = 8 << 20
_GIB = 2**30


def fetch(hub: Hub, folder: Path, progress: DownloadProgress) -> Manifest:
    """Download a repository to a folder.

    Verified files are not downloaded again, so an interrupted download resumes. A complete download does not change,
    even if its branch moves, so that all pods load the same files.

    Raises:
        ModelError: The download failed.
    """
    with storage(folder), _alone(folder, progress):
        manifest = read_manifest(folder)
        if manifest is None or any(faults(folder, manifest)):
            manifest = _download(hub, folder, progress)
        progress.commit, progress.total, progress.phase = manifest.commit, manifest.size, Phase.READY
        return manifest


@contextmanager
def _alone(folder: Path, progress: DownloadProgress) -> Iterator[None]:
    """Hold the lock of a folder. Waits for another download, which may take hours."""
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


def _download(hub: Hub, folder: Path, progress: DownloadProgress) -> Manifest:
    progress.phase = Phase.ASKING
    listing = hub.listing()
    wanted = listing.wanted()
    if not any(file.path == "config.json" for file in wanted):
        raise ModelError("NotAModel", f"{hub} has no config.json, which vLLM needs. Check the source.")
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
    """Download several files at a time. After the first failure, no new downloads start."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        futures = [pool.submit(hub.download, file, commit, folder) for file in files]
        try:
            for future in futures:
                future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _remove_others(folder: Path, wanted: set[str]) -> None:
    """Delete files of other commits, because vLLM loads all safetensors files of a folder.

    Also delete links, because a download would write to their targets.
    """
    for where, folders, names in os.walk(folder):
        for name in (*folders, *names):
            file = Path(where, name)
            path = file.relative_to(folder)
            stays = name in folders or str(path) in wanted or path.parts[0].startswith(".")
            if file.is_symlink() or not stays or (name in names and not file.is_file()):
                file.unlink(missing_ok=True)


def _remove_notes(folder: Path) -> None:
    """Delete files of the hubs' clients: locks, and partial downloads that they cannot resume."""
    for name in NOTES:
        shutil.rmtree(folder / name, ignore_errors=True)


def _require_space(folder: Path, missing: Iterable[RemoteFile]) -> None:
    needed, free = sum(file.size for file in missing), shutil.disk_usage(folder).free
    if needed > free:
        raise ModelError(
            "NoSpace",
            f"The download needs {needed / _GIB:.1f} GiB, but the volume has {free / _GIB:.1f} GiB free. Enlarge the "
            "volume, or delete models from it.",
        )


def _require_verified(folder: Path, file: RemoteFile) -> str:
    digest = _verified(folder, file)
    if digest is None:
        (folder / file.path).unlink(missing_ok=True)
        raise ModelError(
            "Damaged",
            f"The download of {file.path} is damaged: its size or hash differs from that on the hub. The operator "
            "retries; if the error persists, check proxies and mirrors.",
        )
    return digest


def _verified(folder: Path, file: RemoteFile) -> str | None:
    """The SHA-256 of a file that matches the hub; None if it does not match or does not exist."""
    path = folder / file.path
    if path.is_symlink() or not path.is_file() or path.stat().st_size != file.size:
        return None
    if file.etag is not None and noted_etag(folder, file.path) != file.etag:
        return None
    sha256 = hashlib.sha256()
    blob = hashlib.sha1(f"blob {file.size}\0".encode(), usedforsecurity=False)  # git's hash of a file
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
