"""Compiled code that outlives pods: real processes and files, with a stand-in for vLLM."""

import contextlib
import hashlib
import io
import os
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdinference.engine.command import script
from pdinference.engine.scripts import compile_cache
from pdinference.engine.scripts.compile_cache import (
    MOST_ARCHIVES,
    UNUSED_SECONDS,
    Cache,
    archives,
    files,
    folders,
    publish,
    restore,
)
from tests.ports import free_port
from tests.waiting import LONG_S, wait_until

KEY, OTHER = "0123456789abcdef", "fedcba9876543210"
VLLM = """
import os, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

kernel = Path(os.environ["HOME"], ".cache", "vllm", "torch_compile_cache", "a", "kernel")
if kernel.exists():
    print("found", kernel.read_text(), flush=True)
    if kernel.read_text() == "poison":
        sys.exit(3)
else:
    kernel.parent.mkdir(parents=True)
    kernel.write_text("code")
    print("compiled", flush=True)

class Health(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def log_message(self, *_):
        pass

HTTPServer(("127.0.0.1", int(sys.argv[1])), Health).serve_forever()
"""
"""Stands in for vLLM: compiles unless it finds what it needs, then answers /health."""


class Start:
    """One start of the program, and what was written."""

    def __init__(self, kept: Path, home: Path, port: str) -> None:
        vllm = (sys.executable, "-c", VLLM, port)
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-c", script("compile_cache"), str(kept), KEY, port, *vllm],
            env={"HOME": str(home), "PATH": os.environ["PATH"]},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.lines: list[str] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.lines.extend(line.strip() for line in self.process.stdout)

    def says(self, text: str) -> None:
        """Wait until it has written a text."""
        wait_until(lambda: any(text in line for line in self.lines), lambda: f"{text!r} is among {self.lines}")

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(LONG_S)


Starting = Callable[..., Start]


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """The volume."""
    folder = tmp_path / "kept"
    folder.mkdir()
    return folder


@pytest.fixture
def start(tmp_path: Path, kept: Path) -> Iterator[Starting]:
    """Starts the program in a pod of a name, with a home of its own."""
    started: list[Start] = []
    ports: defaultdict[str, str] = defaultdict(lambda: str(free_port()))

    def make(pod: str) -> Start:
        home = tmp_path / pod
        home.mkdir(exist_ok=True)
        started.append(Start(kept, home, ports[pod]))
        return started[-1]

    yield make
    for each in started:
        each.end()


def packed(kept: Path, members: dict[str, bytes], key: str = KEY, **changes: Any) -> Path:
    """An archive with members of any kind, under the name that fits its content."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            for attribute, value in changes.items():
                setattr(member, attribute, value)
            archive.addfile(member, io.BytesIO(content))
    path = kept / f"{key}-{hashlib.sha256(written.getvalue()).hexdigest()}.tar"
    path.write_bytes(written.getvalue())
    return path


def compiled(home: Path, name: str = "torch_compile_cache/a/kernel", content: bytes = b"code") -> Path:
    path = home / ".cache" / "vllm" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def at(kept: Path, home: Path) -> Cache:
    return Cache(kept, KEY, folders({"HOME": str(home)}))


def test_what_a_pod_compiles_the_next_one_finds(start: Starting, kept: Path) -> None:
    first = start("a")
    first.says("there is no archive")
    first.says("kept 1 files")
    first.end()
    second = start("b")
    second.says("restored 1 files")
    second.says("found code")
    assert len(list(kept.iterdir())) == 1


def test_two_pods_that_start_at_once_leave_one_whole_archive(start: Starting, kept: Path, tmp_path: Path) -> None:
    pods = [start("a"), start("b")]
    for pod in pods:
        pod.says("compiled")
        pod.says("kept 1 files")
    (archive,) = archives(kept)
    assert restore(at(kept, tmp_path / "c")) == archive.digest


def test_a_torn_archive_is_deleted_and_made_anew(start: Starting, kept: Path) -> None:
    archive = packed(kept, {"torch_compile_cache/a/kernel": b"code"})
    whole = archive.read_bytes()
    archive.write_bytes(whole[: len(whole) // 2])
    pod = start("a")
    pod.says("is not whole")
    pod.says("compiled")
    pod.says("kept 1 files")
    (made,) = archives(kept)
    assert made.digest == hashlib.sha256(made.path.read_bytes()).hexdigest()


def test_vllm_that_fails_with_an_archive_starts_without_it(start: Starting, kept: Path) -> None:
    poison = packed(kept, {"torch_compile_cache/a/kernel": b"poison"})
    first = start("a")
    first.says("found poison")
    assert first.process.wait(LONG_S) == 3
    again = start("a")
    again.says("did not become healthy")
    again.says("compiled")
    again.says("kept 1 files")
    assert not poison.exists()
    other = start("b")
    other.says("found code")


def test_a_container_that_starts_again_has_what_it_compiled(start: Starting, kept: Path) -> None:
    first = start("a")
    first.says("kept 1 files")
    first.end()
    for archive in archives(kept):
        archive.path.unlink()
    start("a").says("found code")


def test_a_start_with_nothing_new_keeps_nothing_new(kept: Path, tmp_path: Path) -> None:
    """Of what vLLM writes anew at each start, names and sizes stay."""
    cache = at(kept, tmp_path)
    kernel = compiled(tmp_path)
    known = files(cache.folders)
    kernel.write_bytes(kernel.read_bytes())
    assert files(cache.folders) == known
    kernel.write_bytes(b"longer code")
    assert files(cache.folders) != known


def test_without_a_folder_to_write_to_vllm_starts_all_the_same(start: Starting, kept: Path) -> None:
    kept.rmdir()
    pod = start("a")
    pod.says("cannot be used")
    pod.says("compiled")
    pod.says("cannot be kept")


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("torch_compile_cache/../../escaped", {}),
        ("/torch_compile_cache/a", {}),
        ("other/a", {}),
        ("triton", {}),
        ("triton/a", {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"}),
        ("triton/a", {"type": tarfile.LNKTYPE, "linkname": "/etc/passwd"}),
        ("triton/a", {"type": tarfile.FIFOTYPE}),
        ("triton/a", {"type": tarfile.CHRTYPE}),
    ],
)
def test_an_archive_with_another_member_than_files_of_these_folders_is_deleted(
    kept: Path, tmp_path: Path, name: str, changes: dict[str, Any]
) -> None:
    archive = packed(kept, {"triton/before": b"", name: b""}, **changes)
    assert restore(at(kept, tmp_path / "home")) == ""
    assert not archive.exists()
    assert not [path for path in (tmp_path / "home").rglob("*") if path.is_file()]


def test_entries_that_are_no_archive_are_left_alone(kept: Path, tmp_path: Path) -> None:
    digest = hashlib.sha256(b"").hexdigest()
    os.mkfifo(kept / f"{KEY}-{digest}.tar")
    (kept / f"{OTHER}-{digest}.tar").symlink_to("/etc/passwd")
    (kept / "notes.txt").write_text("mine")
    assert restore(at(kept, tmp_path)) == ""
    compiled(tmp_path)
    publish(at(kept, tmp_path))
    assert (kept / "notes.txt").exists()


def test_archives_and_what_is_in_them_are_bounded(kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = packed(kept, {"triton/a": bytes(2000)})
    monkeypatch.setattr(compile_cache, "MOST_BYTES", 1000)
    assert restore(at(kept, tmp_path / "home")) == ""
    assert not archive.exists()
    compiled(tmp_path, content=bytes(2000))
    with pytest.raises(ValueError, match="more than"):
        publish(at(kept, tmp_path))
    assert list(kept.iterdir()) == []


def test_many_files_are_too_many(kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed(kept, {f"triton/{number}": b"" for number in range(5)})
    monkeypatch.setattr(compile_cache, "MOST_FILES", 4)
    assert restore(at(kept, tmp_path / "home")) == ""


def test_locks_downloads_and_facts_of_a_node_are_not_kept(kept: Path, tmp_path: Path) -> None:
    home = tmp_path / "a"
    for name in ("gpu_p2p_access_cache_for_0.json", "assets/picture", "modelinfos/x.lock", "deep_gemm/tmp.pid_1/k.so"):
        compiled(home, name)
    (home / ".cache" / "vllm" / "modelinfos" / "link").symlink_to("/etc/passwd")
    compiled(home, "modelinfos/x.json")
    publish(at(kept, home))
    restore(at(kept, tmp_path / "b"))
    found = [path.relative_to(tmp_path / "b").as_posix() for path in (tmp_path / "b").rglob("*") if path.is_file()]
    assert found == [".cache/vllm/modelinfos/x.json"]


def test_old_archives_go_and_those_in_use_stay(kept: Path, tmp_path: Path) -> None:
    now = time.time()
    used = packed(kept, {"triton/a": b"1"}, OTHER)
    old = packed(kept, {"triton/a": b"2"}, OTHER)
    os.utime(old, (now - 2 * UNUSED_SECONDS,) * 2)
    abandoned, growing = kept / f"{OTHER}-x.partial", kept / f"{OTHER}-y.partial"
    for path in (abandoned, growing):
        path.write_bytes(b"")
    os.utime(abandoned, (now - 86400,) * 2)
    compiled(tmp_path)
    publish(at(kept, tmp_path))
    assert used.exists()
    assert growing.exists()
    assert not old.exists()
    assert not abandoned.exists()


def test_of_many_archives_those_used_last_stay(kept: Path, tmp_path: Path) -> None:
    for number in range(MOST_ARCHIVES + 3):
        path = packed(kept, {"triton/a": str(number).encode()}, OTHER)
        os.utime(path, (time.time() - 1000 + number,) * 2)
    compiled(tmp_path)
    publish(at(kept, tmp_path))
    assert len(archives(kept)) == MOST_ARCHIVES
    assert archives(kept)[0].path.name.startswith(KEY)


NAMES = st.text(alphabet="abc._-", min_size=1, max_size=6).filter(lambda name: name.strip(".") and name[-4:] != ".tmp")


@given(
    contents=st.dictionaries(
        st.tuples(st.sampled_from(sorted(folders({}))), NAMES, NAMES), st.binary(max_size=64), min_size=1, max_size=8
    )
)
def test_what_comes_back_is_what_was_kept(
    tmp_path_factory: pytest.TempPathFactory, contents: dict[tuple[str, str, str], bytes]
) -> None:
    base = tmp_path_factory.mktemp("pods")
    (base / "kept").mkdir()
    ours, theirs = (at(base / "kept", base / pod) for pod in "ab")
    for number, ((of, folder, name), content) in enumerate(contents.items()):
        path = ours.folders[of] / f"d{folder}" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        path.chmod(0o755 if number % 2 else 0o600)
    digest = publish(ours)
    assert restore(theirs) == digest
    for (of, folder, name), content in contents.items():
        before, after = (side.folders[of] / f"d{folder}" / name for side in (ours, theirs))
        assert after.read_bytes() == content
        assert bool(after.stat().st_mode & 0o100) == bool(before.stat().st_mode & 0o100)
        assert abs(after.stat().st_mtime - before.stat().st_mtime) < 0.001
    assert publish(ours) == digest
