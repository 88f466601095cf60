"""Compiled code that outlives pods: real processes and files, with a stand-in for vLLM."""

import contextlib
import hashlib
import json
import os
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdinference.engine.scripts import compile_cache
from pdinference.engine.scripts.compile_cache import (
    MOST_ARCHIVES,
    UNUSED_SECONDS,
    Cache,
    State,
    archives,
    clean,
    files,
    folders,
    keep,
    prepare,
    publish,
    restore,
)
from tests.engine.scripts.started import Started
from tests.ports import free_port
from tests.waiting import wait_until

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


class Start(Started):
    """One start of the program in a pod."""

    def __init__(self, kept: Path, home: Path, port: str) -> None:
        self.port = int(port)
        vllm = (sys.executable, "-c", VLLM, port)
        env = {"HOME": str(home), "PATH": os.environ["PATH"]}
        super().__init__("compile_cache", str(kept), KEY, port, *vllm, env=env)

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.ends()


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


def entry(name: str, content: bytes = b"", **changes: Any) -> bytes:
    """A file as an archive has it."""
    line = {"name": name, "bytes": len(content), "executable": False, "changed": 10**18, **changes}
    return json.dumps(line).encode() + b"\n" + content


def packed(kept: Path, *entries: bytes, key: str = KEY) -> Path:
    """An archive under the name that fits its content."""
    content = b"".join(entries)
    path = kept / f"{key}-{hashlib.sha256(content).hexdigest()}.archive"
    path.write_bytes(content)
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
    archive = packed(kept, entry("torch_compile_cache/a/kernel", b"code"))
    whole = archive.read_bytes()
    archive.write_bytes(whole[: len(whole) // 2])
    pod = start("a")
    pod.says("is not whole")
    pod.says("compiled")
    pod.says("kept 1 files")
    (made,) = archives(kept)
    assert made.digest == hashlib.sha256(made.path.read_bytes()).hexdigest()


def test_vllm_that_fails_with_an_archive_starts_without_it(start: Starting, kept: Path) -> None:
    poison = packed(kept, entry("torch_compile_cache/a/kernel", b"poison"))
    first = start("a")
    first.says("found poison")
    assert first.ends() == 3
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
    "content",
    [
        entry("torch_compile_cache/../../escaped"),
        entry("/torch_compile_cache/a"),
        entry("other/a"),
        entry("triton"),
        entry("triton/" + "a/" * 40 + "a"),
        entry("triton/" + "a" * 300),
        entry("triton/a\0"),
        entry("triton/a", b"1") + entry("triton/a", b"2"),
        entry("triton/a") + entry("triton/a/b"),
        entry("triton/a", b"", bytes=-1),
        entry("triton/a", b"", bytes=True),
        entry("triton/a", b"", bytes=2**80),
        entry("triton/a", b"", changed=2**80),
        entry("triton/a", b"", changed=1e300),
        b'{"name": ["triton/a"], "bytes": 0, "executable": false, "changed": 1}\n',
        entry("triton/a", b"12", bytes=3),
        b"[" * 4000 + b"\n",
        b"[" * 40000,
        b'{"name": "triton/a"}\n',
        b"\xff\n",
        b"\n",
        bytes(1000),
    ],
)
def test_an_archive_with_anything_else_than_files_of_these_folders_is_deleted(
    kept: Path, tmp_path: Path, content: bytes
) -> None:
    older = packed(kept, entry("triton/older", b"whole"))
    os.utime(older, (1, 1))
    archive = packed(kept, entry("triton/before"), content)
    home = tmp_path / "home"
    assert restore(at(kept, home)) in older.name
    assert not archive.exists()
    assert [path.name for path in home.rglob("*") if path.is_file()] == ["older"]


def test_a_pod_that_is_killed_while_it_unpacks_begins_anew(
    kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has until then would otherwise be taken for its own, and become the next archive."""
    cache, state = at(kept, tmp_path), State(tmp_path / "state")

    def killed(_cache: Cache, _refused: object) -> str:
        compiled(tmp_path, content=b"half")
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(compile_cache, "restore", killed)
        with pytest.raises(KeyboardInterrupt):
            prepare(cache, state)
    packed(kept, entry("torch_compile_cache/a/kernel", b"whole"))
    prepare(cache, State(tmp_path / "state"))
    assert (cache.folders["torch_compile_cache"] / "a" / "kernel").read_bytes() == b"whole"


def test_without_a_place_for_its_notes_vllm_starts_all_the_same(start: Starting, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / ".compile-cache").write_text("in the way")
    pod = start("a")
    pod.says("it is not used")
    pod.says("compiled")


def test_the_health_is_asked_directly(start: Starting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    pod = start("a")
    pod.says("compiled")
    wait_until(lambda: compile_cache._is_healthy(pod.port), "its health")


def test_an_archive_that_is_replaced_meanwhile_is_looked_for_again(
    kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed(kept, entry("triton/a", b"old"))
    fetch = compile_cache._fetch
    replaced: list[Path] = []

    def late(archive: compile_cache.Archive, copy: BinaryIO) -> None:
        if not replaced:
            replaced.append(packed(kept, entry("triton/a", b"new")))
            archive.path.unlink()
        fetch(archive, copy)

    monkeypatch.setattr(compile_cache, "_fetch", late)
    cache = at(kept, tmp_path)
    assert restore(cache) in replaced[0].name
    assert (cache.folders["triton"] / "a").read_bytes() == b"new"


def test_a_node_without_requests_is_not_healthy_because_it_is_quiet(
    kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights may take minutes. Poison that ends vLLM after that is not used again."""
    monkeypatch.setattr(compile_cache, "_QUIET_SECONDS", 0)
    cache, state = at(kept, tmp_path), State(tmp_path / "state")
    prepare(cache, state)
    compiled(tmp_path)
    keep(cache, state, 0, os.getppid() + 1)
    assert not list(kept.iterdir())
    monkeypatch.setattr(compile_cache, "_UNSEEN_SECONDS", 0.01)
    compiled(tmp_path, "deep_gemm/k")
    keep(cache, state, 0, os.getppid())
    assert not state.failed


def test_entries_that_are_no_archive_are_left_alone(kept: Path, tmp_path: Path) -> None:
    digest = hashlib.sha256(b"").hexdigest()
    os.mkfifo(kept / f"{KEY}-{digest}.archive")
    (kept / f"{OTHER}-{digest}.archive").symlink_to("/etc/passwd")
    (kept / "notes.txt").write_text("mine")
    assert restore(at(kept, tmp_path)) == ""
    compiled(tmp_path)
    publish(at(kept, tmp_path))
    assert (kept / "notes.txt").exists()


def test_archives_and_what_is_in_them_are_bounded(kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = packed(kept, entry("triton/a", bytes(2000)))
    monkeypatch.setattr(compile_cache, "MOST_BYTES", 1000)
    assert restore(at(kept, tmp_path / "home")) == ""
    assert not archive.exists()
    compiled(tmp_path, content=bytes(2000))
    with pytest.raises(ValueError, match="more than"):
        publish(at(kept, tmp_path))
    assert list(kept.iterdir()) == []


def test_many_damaged_archives_do_not_delay_a_start(kept: Path, tmp_path: Path) -> None:
    for number in range(20):
        (kept / f"{KEY}-{number:064x}.archive").write_bytes(b"damaged")
    assert restore(at(kept, tmp_path)) == ""
    assert len(archives(kept)) == 16


def test_many_files_are_too_many(kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed(kept, *(entry(f"triton/{number}") for number in range(5)))
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
    used = packed(kept, entry("triton/a", b"1"), key=OTHER)
    old = packed(kept, entry("triton/a", b"2"), key=OTHER)
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


@pytest.mark.parametrize("later", [0, 1])
@pytest.mark.parametrize("last", [0, 1])
def test_pods_that_publish_at_once_leave_one_archive(kept: Path, tmp_path: Path, later: int, last: int) -> None:
    """An archive that was written later may get its name earlier, and a clock ticks only every few milliseconds."""
    written = [packed(kept, entry("triton/a", content)) for content in (b"1", b"2")]
    newest = max(written) if not later else written[later]
    for path in written:
        os.utime(path, (1e9, 1e9 + later * (path == newest)))
    hidden = written[1 - last].rename(tmp_path / "hidden")
    clean(at(kept, tmp_path))
    hidden.rename(written[1 - last])
    clean(at(kept, tmp_path))
    assert list(kept.iterdir()) == [newest]


def test_of_many_archives_those_used_last_stay(kept: Path, tmp_path: Path) -> None:
    for number in range(MOST_ARCHIVES + 3):
        path = packed(kept, entry("triton/a", str(number).encode()), key=OTHER)
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
        assert after.stat().st_mtime_ns == before.stat().st_mtime_ns
    assert publish(ours) == digest
