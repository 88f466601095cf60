"""Run vLLM with what an earlier start compiled, and keep what this start compiles for the next one.

vLLM, Triton, FlashInfer and DeepGEMM work on folders of the pod alone. Before vLLM starts, the newest archive is
unpacked into them. When vLLM is healthy, and again later, what is new there becomes the next archive. So pods that
start at once do not disturb each other. Nobody sees half an archive: it gets its name, `<key>-<SHA-256>.tar`, when it
is complete, and one that differs from the digest in its name is deleted.

A start that did not become healthy is taken for the fault of the cache: the next start in this pod is without it.

Arguments: folder of the archives, key, vLLM's port (0 on a node that serves nothing); the program with its arguments.
"""

import contextlib
import hashlib
import os
import re
import shutil
import stat
import sys
import tarfile
import tempfile
import time
import urllib.request
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import BinaryIO, NamedTuple

MOST_BYTES = 4 * 2**30
"""Of an archive, and of the files in it. Dense models have 35 MB; FlashInfer's kernels have hundreds."""
MOST_FILES = 100_000
MOST_ARCHIVES = 128
UNUSED_SECONDS = 30 * 86400.0
_ABANDONED_SECONDS = 3600.0
_MOST_ENTRIES = 10_000
_LATER_SECONDS = 600.0
"""Kernels of the first requests are compiled after vLLM has become healthy."""
_QUIET_SECONDS = 120.0
_PERIOD_SECONDS = 2.0
_CHUNK = 2**20
_ARCHIVE = re.compile(r"([0-9a-f]{1,64})-([0-9a-f]{64})\.tar")
# Not all of vLLM's folder: it also holds downloads, and which devices of this node reach each other.
_OF_VLLM = (
    "torch_compile_cache",
    "modelinfos",
    "deep_gemm",
    "flashinfer_autotune_cache",
    "startup_plan",
    "rocm_segmented_attention",
)

Folders = Mapping[str, Path]
"""Folders with compiled code, by their name in an archive."""
Files = dict[str, int]
"""Bytes of each file, by its name in an archive. Names are made of hashes, so what is new has a new name or size; vLLM
writes some files anew at each start."""


class Archive(NamedTuple):
    """An archive of a key."""

    path: Path
    digest: str
    used: float


class Cache(NamedTuple):
    """The cache of one engine.

    Attributes:
        archives: Folder with the archives of all engines.
        key: What the engine's archives begin with.
        folders: Where the engine has its compiled code.
    """

    archives: Path
    key: str
    folders: Folders


def folders(environment: Mapping[str, str]) -> Folders:
    """Where vLLM (`envs.py`), Triton (`knobs.py`) and FlashInfer (`jit/env.py`) keep what they compile."""
    home = Path(environment.get("HOME", "/"))
    root = Path(environment.get("VLLM_CACHE_ROOT") or home / ".cache" / "vllm")
    return {
        **{name: root / name for name in _OF_VLLM},
        "triton": Path(environment.get("TRITON_CACHE_DIR") or home / ".triton" / "cache"),
        "flashinfer": Path(environment.get("FLASHINFER_WORKSPACE_BASE") or home) / ".cache" / "flashinfer",
    }


def files(found: Folders) -> Files:
    """The files that an archive would have. Locks and files that are being written are none of them."""
    result = {}
    for name, folder in found.items():
        for parent, below, names in os.walk(folder):
            below[:] = [each for each in below if not each.startswith("tmp.")]
            for each in names:
                path = Path(parent, each)
                with contextlib.suppress(FileNotFoundError):
                    of_file = path.lstat()
                    if stat.S_ISREG(of_file.st_mode) and not each.endswith((".lock", ".tmp")):
                        within = PurePosixPath(name, path.relative_to(folder).as_posix())
                        result[str(within)] = of_file.st_size
    return result


def archives(folder: Path) -> list[Archive]:
    """The archives of all keys, those used last first."""
    with os.scandir(folder) as entries:
        named = [(entry, _ARCHIVE.fullmatch(entry.name)) for entry in islice(entries, _MOST_ENTRIES)]
    found = []
    for entry, match in named:
        with contextlib.suppress(FileNotFoundError):
            if match and entry.is_file(follow_symlinks=False):
                found.append(Archive(Path(entry.path), match[2], entry.stat(follow_symlinks=False).st_mtime))
    return sorted(found, key=lambda each: each.used, reverse=True)


def restore(cache: Cache, refused: Iterable[str] = ()) -> str:
    """Unpack the newest archive.

    Returns:
        Its digest; empty if there is none.

    Raises:
        OSError: The folder cannot be read, or the pod's own cannot be written.
    """
    for archive in archives(cache.archives):
        if not archive.path.name.startswith(f"{cache.key}-") or archive.digest in refused:
            continue
        try:
            with tempfile.TemporaryFile() as copy:
                _fetch(archive, copy)
                _unpack(copy, cache.folders)
        except (ValueError, tarfile.TarError) as error:
            _say(f"{archive.path} is not whole: {error}. It is deleted.")
            _forget(cache.folders)
            with contextlib.suppress(OSError):
                archive.path.unlink()
        else:
            with contextlib.suppress(OSError):  # the time of use
                os.utime(archive.path)
            return archive.digest
    return ""


def _fetch(archive: Archive, copy: BinaryIO) -> None:
    """Copy an archive, so that what is unpacked is what was compared with the digest."""
    # No symbolic link, and no pipe that never answers.
    source = os.open(archive.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(source, "rb") as file:
        digest, size = hashlib.sha256(), 0
        if not stat.S_ISREG(os.fstat(source).st_mode):
            raise ValueError("it is no file")
        while chunk := file.read(_CHUNK):
            size += len(chunk)
            if size > MOST_BYTES:
                raise ValueError(f"it has more than {MOST_BYTES} bytes")
            digest.update(chunk)
            copy.write(chunk)
    if digest.hexdigest() != archive.digest:
        raise ValueError(f"its SHA-256 is {digest.hexdigest()}")
    copy.seek(0)


def _unpack(copy: BinaryIO, found: Folders) -> None:
    size = 0
    with tarfile.open(fileobj=copy, mode="r:") as archive:
        for number, member in enumerate(archive):
            size += member.size
            if number >= MOST_FILES or size > MOST_BYTES:
                raise ValueError(f"it has more than {MOST_FILES} files or {MOST_BYTES} bytes of them")
            first, *rest = PurePosixPath(member.name).parts or ("",)
            content = archive.extractfile(member) if member.isreg() else None
            if content is None or first not in found or not rest or ".." in rest:
                raise ValueError(f"it has the member {member.name!r}")
            path = found[first].joinpath(*rest)
            path.parent.mkdir(parents=True, exist_ok=True)
            with content, path.open("wb") as file:
                shutil.copyfileobj(content, file, _CHUNK)
            path.chmod(0o700 if member.mode & 0o100 else 0o600)
            # FlashInfer's builds compare times.
            os.utime(path, (member.mtime, member.mtime))


def publish(cache: Cache) -> str:
    """Make an archive of what was compiled. It replaces the earlier ones.

    Returns:
        Its digest.

    Raises:
        OSError: The folder cannot be written, or a file has changed meanwhile.
        ValueError: There is too much.
    """
    listed = files(cache.folders)
    if len(listed) > MOST_FILES or sum(listed.values()) > MOST_BYTES:
        raise ValueError(f"there are more than {MOST_FILES} files, or {MOST_BYTES} bytes")
    handle, name = tempfile.mkstemp(prefix=f"{cache.key}-", suffix=".partial", dir=cache.archives)
    partial = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            digest = _pack(sorted(listed), cache.folders, file)
            file.flush()
            os.fsync(handle)
            os.fchmod(handle, 0o644)
        published = partial.replace(cache.archives / f"{cache.key}-{digest}.tar")
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise
    clean(cache, published)
    return digest


def _pack(names: Iterable[str], found: Folders, file: BinaryIO) -> str:
    writer = _Hashing(file)
    with tarfile.open(fileobj=writer, mode="w|", format=tarfile.PAX_FORMAT) as archive:  # type: ignore[call-overload]
        for name in names:
            first, *rest = PurePosixPath(name).parts
            path = found[first].joinpath(*rest)
            member = archive.gettarinfo(path, name)
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.type, member.linkname = tarfile.REGTYPE, ""  # also for a file of several names
            member.size = path.stat().st_size
            with path.open("rb") as content:
                archive.addfile(member, content)
    return writer.digest.hexdigest()


class _Hashing:
    """A file that is written, and the digest of what was."""

    def __init__(self, file: BinaryIO) -> None:
        self.digest = hashlib.sha256()
        self._file = file

    def write(self, content: bytes) -> int:
        self.digest.update(content)
        return self._file.write(content)


def clean(cache: Cache, newest: Path) -> None:
    """Delete the engine's earlier archives, those that nobody used for a month, and what killed pods left."""
    others = [each for each in archives(cache.archives) if each.path != newest]
    now = time.time()
    old = [
        each.path
        for number, each in enumerate(others, start=1)
        if each.path.name.startswith(f"{cache.key}-") or number >= MOST_ARCHIVES or now - each.used > UNUSED_SECONDS
    ]
    partial = [
        path
        for path in islice(cache.archives.glob("*.partial"), _MOST_ENTRIES)
        if now - path.lstat().st_mtime > _ABANDONED_SECONDS
    ]
    for path in (*old, *partial):
        with contextlib.suppress(OSError):
            path.unlink()


class State:
    """What the pod knows of its earlier starts."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._starting, self._refused = folder / "starting", folder / "refused"

    @property
    def refused(self) -> frozenset[str]:
        """Digests of archives with which vLLM did not become healthy."""
        return frozenset(self._refused.read_text().split()) if self._refused.exists() else frozenset()

    def failed(self) -> bool:
        """Whether the start before did not become healthy. Its archive is refused from now on."""
        if not self._starting.exists():
            return False
        if digest := self._starting.read_text():
            self._refused.write_text("\n".join(sorted({*self.refused, digest})))
        return True

    def begin(self, digest: str) -> None:
        """A start begins, with an archive or, if empty, without."""
        self._starting.write_text(digest)

    def succeed(self) -> None:
        """vLLM is healthy."""
        self._starting.unlink(missing_ok=True)


def prepare(cache: Cache, state: State) -> None:
    """Before vLLM starts: an archive unpacked, unless the pod has compiled code already."""
    digest = ""
    if state.failed():
        _say("vLLM did not become healthy in the start before, so it compiles anew.")
        _forget(cache.folders)
    if not files(cache.folders):
        begin = time.monotonic()
        try:
            digest = restore(cache, state.refused)
        except OSError as error:
            _say(f"{cache.archives} cannot be used: {error}. vLLM compiles anew.")
            _forget(cache.folders)
        else:
            _say(_restored(digest, files(cache.folders), time.monotonic() - begin))
    state.begin(digest)


def _restored(digest: str, listed: Files, seconds: float) -> str:
    if not digest:
        return "there is no archive for this engine yet, so vLLM compiles anew."
    megabytes = sum(listed.values()) / 1e6
    return f"restored {len(listed)} files, {megabytes:.1f} MB, in {seconds:.2f} s ({digest[:12]})."


def keep(cache: Cache, state: State, port: int, parent: int) -> None:
    """While vLLM, the parent, runs: note that it is healthy, and publish what is new then, and once more later."""
    known = files(cache.folders)
    while not (_is_healthy(port) if port else _is_quiet(cache.folders)):
        if os.getppid() != parent:
            return
        time.sleep(_PERIOD_SECONDS)
    state.succeed()
    known = _published(cache, known)
    until = time.monotonic() + _LATER_SECONDS
    while time.monotonic() < until:
        if os.getppid() != parent:
            return
        time.sleep(_PERIOD_SECONDS)
    _published(cache, known)


def _published(cache: Cache, known: Files) -> Files:
    """Publish what is compiled unless it is known already."""
    listed = files(cache.folders)
    if listed == known:
        return known
    try:
        digest = publish(cache)
    except (OSError, ValueError, tarfile.TarError) as error:
        _say(f"what vLLM has compiled cannot be kept in {cache.archives}: {error}. The next start compiles it again.")
        return known
    _say(f"kept {len(listed)} files, {sum(listed.values()) / 1e6:.1f} MB ({digest[:12]}).")
    return listed


def _is_healthy(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as response:
            return bool(response.status == 200)
    except (OSError, ValueError):
        return False


def _is_quiet(found: Folders) -> bool:
    """Whether compiled code is there, and for a while no folder has got more."""
    if not files(found):
        return False
    changed = 0.0
    for folder in found.values():
        for parent, _, _ in os.walk(folder):
            with contextlib.suppress(FileNotFoundError):
                changed = max(changed, Path(parent).stat().st_mtime)
    return time.time() - changed > _QUIET_SECONDS


def _forget(found: Folders) -> None:
    for folder in found.values():
        shutil.rmtree(folder, ignore_errors=True)


def _say(text: str) -> None:
    sys.stderr.write(f"Compile cache: {text}\n")
    sys.stderr.flush()


def main(folder: str, key: str, port: str, *program: str) -> None:
    """Prepare the cache, leave a process that keeps it, and become vLLM."""
    cache = Cache(Path(folder), key, folders(os.environ))
    state = State(Path(os.environ.get("HOME", "/"), ".compile-cache", port))
    prepare(cache, state)
    own = os.getpid()
    if os.fork() == 0:
        keep(cache, state, int(port), own)
        os._exit(0)
    os.execvp(program[0], program)  # noqa: S606 - no shell is the point


if __name__ == "__main__":
    main(*sys.argv[1:])
