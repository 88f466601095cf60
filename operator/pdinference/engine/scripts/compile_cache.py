"""Run vLLM with what an earlier start compiled, and keep what this start compiles for the next one.

vLLM, Triton, FlashInfer and DeepGEMM work on folders of the pod alone. Before vLLM starts, the newest archive is
unpacked into them. When vLLM is healthy, and again later, what is new there becomes the next archive. So pods that
start at once do not disturb each other. Nobody sees half an archive: it gets its name, `<key>-<SHA-256>.archive`, when
it is complete, and one that differs from the digest in its name is deleted.

A start that did not become healthy is taken for the fault of the cache: the next start in this pod is without it.
Whatever is wrong with the cache, vLLM starts.

An archive has, for each file, a line of JSON and the content. Formats such as tar have members whose reading takes more
memory, time or disk than they have bytes, and others may write to the folder.

Arguments: folder of the archives, key, vLLM's port (0 on a node that serves nothing); the program with its arguments.
"""

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
import stat
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
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
_UNSEEN_SECONDS = 1800.0
"""A node that serves nothing counts as healthy when its vLLM has run for this long after it last compiled."""
_QUIET_SECONDS = 120.0
_PERIOD_SECONDS = 2.0
_CHUNK = 2**20
_LONGEST_LINE = 4096
_MOST_PARTS = 32
_TRIES = 3
_MOST_LOOKED_AT = 4
"""Archives of a key: an engine has one, and one more while it is replaced. To look at a large one takes seconds."""
_ARCHIVE = re.compile(r"([0-9a-f]{1,64})-([0-9a-f]{64})\.archive")
_OF_THIS_POD = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS})
"""Errors for which an archive is not to blame."""
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
    """The archives of all keys, those used last first. Equal times are ordered by name."""
    with os.scandir(folder) as entries:
        named = [(entry, _ARCHIVE.fullmatch(entry.name)) for entry in islice(entries, _MOST_ENTRIES)]
    found = []
    for entry, match in named:
        with contextlib.suppress(FileNotFoundError):
            if match and entry.is_file(follow_symlinks=False):
                found.append(Archive(Path(entry.path), match[2], entry.stat(follow_symlinks=False).st_mtime))
    return sorted(found, key=lambda each: (each.used, each.path.name), reverse=True)


def restore(cache: Cache, refused: Iterable[str] = ()) -> str:
    """Unpack the newest archive that is whole; others are deleted.

    Returns:
        Its digest; empty if there is none.

    Raises:
        OSError: The folder cannot be read, or the pod's own cannot be written.
    """
    for left in reversed(range(_TRIES)):
        try:
            return _restored_from(cache, frozenset(refused))
        except FileNotFoundError:  # another pod has replaced it meanwhile
            _forget(cache.folders)
            if not left:
                raise
    return ""


def _restored_from(cache: Cache, refused: frozenset[str]) -> str:
    own = (each for each in archives(cache.archives) if each.path.name.startswith(f"{cache.key}-"))
    for archive in islice((each for each in own if each.digest not in refused), _MOST_LOOKED_AT):
        with tempfile.TemporaryFile() as copy:
            try:
                _fetch(archive, copy)
                _unpack(copy, cache.folders)
            except FileNotFoundError:
                raise
            except Exception as error:
                _forget(cache.folders)
                if isinstance(error, OSError) and error.errno in _OF_THIS_POD:
                    raise
                _say(f"{archive.path} is not whole: {error!r}. It is deleted.")
                with contextlib.suppress(OSError):
                    archive.path.unlink()
                continue
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
    """Write the files of an archive. Together they have no more bytes than the archive."""
    number = 0
    while line := copy.readline(_LONGEST_LINE):
        number += 1
        name, size, executable, changed = _entry(line)
        first, *rest = PurePosixPath(name).parts or ("",)
        if first not in found or not rest or len(rest) > _MOST_PARTS or ".." in rest:
            raise ValueError(f"it has the file {name!r}")
        if number > MOST_FILES:
            raise ValueError(f"it has more than {MOST_FILES} files")
        path = found[first].joinpath(*rest)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            _copied(copy, file, size)
        path.chmod(0o700 if executable else 0o600)
        # FlashInfer's builds compare times.
        os.utime(path, ns=(changed, changed))


def _entry(line: bytes) -> tuple[str, int, bool, int]:
    """Name, bytes, whether it can be executed, and time of the last change of the file whose content follows."""
    entry = json.loads(line)
    name, size, executable, changed = (entry[member] for member in ("name", "bytes", "executable", "changed"))
    if not (isinstance(name, str) and type(size) is int and type(changed) is int and size >= 0 <= changed < 2**63):
        raise ValueError(f"it has the line {line!r}")
    return name, size, bool(executable), changed


def _copied(source: BinaryIO, target: "BinaryIO | _Hashing", size: int) -> None:
    while size:
        chunk = source.read(min(size, _CHUNK))
        if not chunk:
            raise ValueError("a file has fewer bytes than announced")
        target.write(chunk)
        size -= len(chunk)


def publish(cache: Cache) -> str:
    """Make an archive of what was compiled. It replaces the earlier ones.

    Returns:
        Its digest.

    Raises:
        OSError: The folder cannot be written, or a file is gone.
        ValueError: There is too much, or a file has become shorter.
    """
    listed = files(cache.folders)
    if len(listed) > MOST_FILES or sum(listed.values()) + len(listed) * _LONGEST_LINE > MOST_BYTES:
        raise ValueError(f"there are more than {MOST_FILES} files, or {MOST_BYTES} bytes")
    handle, name = tempfile.mkstemp(prefix=f"{cache.key}-", suffix=".partial", dir=cache.archives)
    partial = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            writer = _Hashing(file)
            for each in sorted(listed):
                _pack(each, cache.folders, writer)
            file.flush()
            os.fsync(handle)
            os.fchmod(handle, 0o644)
        digest = writer.digest.hexdigest()
        partial.replace(cache.archives / f"{cache.key}-{digest}.archive")
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise
    clean(cache)
    return digest


def _pack(name: str, found: Folders, writer: "_Hashing") -> None:
    first, *rest = PurePosixPath(name).parts
    with found[first].joinpath(*rest).open("rb") as content:
        of_file = os.fstat(content.fileno())
        entry = {
            "name": name,
            "bytes": of_file.st_size,
            "executable": bool(of_file.st_mode & 0o100),
            "changed": of_file.st_mtime_ns,
        }
        line = json.dumps(entry).encode() + b"\n"
        if len(line) > _LONGEST_LINE or len(rest) > _MOST_PARTS:
            return  # no compiler names files so
        writer.write(line)
        _copied(content, writer, of_file.st_size)


class _Hashing:
    """A file that is written, and the digest of what was."""

    def __init__(self, file: BinaryIO) -> None:
        self.digest = hashlib.sha256()
        self._file = file

    def write(self, content: bytes) -> int:
        self.digest.update(content)
        return self._file.write(content)


def clean(cache: Cache) -> None:
    """Delete the engine's archives but the newest, those that nobody used for a month, and what killed pods left.

    Two pods that publish at once see the same order, so that neither deletes the newest, and the later call sees both.
    """
    known, now = archives(cache.archives), time.time()
    own = [each for each in known if each.path.name.startswith(f"{cache.key}-")]
    others = [each for each in known if each not in own[:1]]
    unused = (each for each in others if now - each.used > UNUSED_SECONDS)
    old = {each.path for each in (*own[1:], *others[MOST_ARCHIVES - 1 :], *unused)}
    for path in (*old, *_abandoned(cache.archives, now)):
        with contextlib.suppress(OSError):
            path.unlink()


def _abandoned(folder: Path, now: float) -> Iterator[Path]:
    """Archives that killed pods have begun."""
    for path in islice(folder.glob("*.partial"), _MOST_ENTRIES):
        with contextlib.suppress(FileNotFoundError):  # another pod has completed it
            if now - path.lstat().st_mtime > _ABANDONED_SECONDS:
                yield path


class State:
    """What the pod knows of its earlier starts: two files, of which the first is there while a start is in progress."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._starting, self._refused = folder / "starting", folder / "refused"

    @property
    def failed(self) -> bool:
        """Whether the start before did not become healthy."""
        return self._starting.exists()

    def refuse(self) -> frozenset[str]:
        """Refuse the archive of a start that failed; the digests of all that are refused."""
        found = {_text(self._refused), _text(self._starting) if self.failed else ""}
        digests = frozenset(" ".join(found).split())
        if self.failed:
            self._refused.write_text("\n".join(sorted(digests)))
        return digests

    def begin(self, digest: str) -> None:
        """A start begins, with an archive or, if empty, without."""
        self._starting.write_text(digest)

    def succeed(self) -> None:
        """The start is over: vLLM is healthy."""
        self._starting.unlink(missing_ok=True)


def _text(file: Path) -> str:
    return file.read_text(errors="replace") if file.exists() else ""


def prepare(cache: Cache, state: State) -> None:
    """Before vLLM starts: an archive unpacked, unless the pod has compiled code already."""
    if state.failed:
        _say("vLLM did not become healthy in the start before, so it compiles anew.")
        _forget(cache.folders)  # before anything is written: the disk may be full
    refused = state.refuse()
    state.begin("")  # a pod that is killed from here on has half of the files
    digest = ""
    if not files(cache.folders):
        begin = time.monotonic()
        _forget(cache.folders)
        try:
            digest = restore(cache, refused)
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
        if not _goes_on(parent, _PERIOD_SECONDS):
            return
    if port:
        state.succeed()
    known = _published(cache, known)
    if _goes_on(parent, _LATER_SECONDS if port else _UNSEEN_SECONDS):
        state.succeed()
        _published(cache, known)


def _goes_on(parent: int, seconds: float) -> bool:
    """Whether the parent still runs after some time."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if os.getppid() != parent:
            return False
        time.sleep(min(seconds, _PERIOD_SECONDS))
    return os.getppid() == parent


def _published(cache: Cache, known: Files) -> Files:
    """Publish what is compiled unless it is known already."""
    listed = files(cache.folders)
    if listed == known:
        return known
    try:
        digest = publish(cache)
    except (OSError, ValueError) as error:
        _say(f"what vLLM has compiled cannot be kept in {cache.archives}: {error}. The next start compiles it again.")
        return known
    _say(f"kept {len(listed)} files, {sum(listed.values()) / 1e6:.1f} MB ({digest[:12]}).")
    return listed


def _is_healthy(port: int) -> bool:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # not by a proxy of the environment
    try:
        with direct.open(f"http://127.0.0.1:{port}/health", timeout=5) as response:
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
    cache, own = Cache(Path(folder), key, folders(os.environ)), os.getpid()
    try:
        state = State(Path(os.environ.get("HOME", "/"), ".compile-cache", port))
        prepare(cache, state)
        child = os.fork()
    except Exception as error:  # noqa: BLE001 - nothing about the cache may keep vLLM from its start
        _say(f"it is not used: {error!r}.")
        _forget(cache.folders)
        child = -1
    if child == 0:
        keep(cache, state, int(port), own)
        os._exit(0)
    os.execvp(program[0], program)  # noqa: S606 - no shell is the point


if __name__ == "__main__":
    main(*sys.argv[1:])
