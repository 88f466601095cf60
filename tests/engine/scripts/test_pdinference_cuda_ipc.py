"""The library whose tables are read: the one of the NIXL that P and D run, and no other."""

import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, files, version
from pathlib import Path

import pytest

from pdinference.engine.scripts import pdinference_cuda_ipc as cuda_ipc

WHEELS = ("nixl-cu12", "nixl-cu13")


def libraries() -> dict[str, Path]:
    """UCX's library in each installed wheel of NIXL."""
    found = {}
    for wheel in WHEELS:
        try:
            names = [name for name in files(wheel) or () if "libuct_cuda.so" in name.name and name.suffix != ".la"]
        except PackageNotFoundError:
            continue
        found[f"{wheel} {version(wheel)}"] = Path(str(names[0].locate()))
    return found


@pytest.mark.vllm
def test_the_library_of_the_pinned_nixl_is_known() -> None:
    """A NIXL that is newer brings another one: look into it (benchmarks/results/dead-peer.md), and try it on GPUs."""
    found = libraries()
    assert found
    assert {name: cuda_ipc.is_known(str(path)) for name, path in found.items()} == dict.fromkeys(found, True)


@pytest.mark.vllm
def test_a_library_that_differs_in_one_byte_is_not_known(tmp_path: Path) -> None:
    changed = tmp_path / "libuct_cuda.so.0"
    shutil.copy(next(iter(libraries().values())), changed)
    content = bytearray(changed.read_bytes())
    content[-1] ^= 1
    changed.write_bytes(content)
    assert not cuda_ipc.is_known(str(changed))


def test_without_the_library_there_is_nothing_to_release() -> None:
    assert cuda_ipc.release_dead() == cuda_ipc.Released()
    assert cuda_ipc.unknown_library() == ""


def test_nothing_is_read_from_a_library_that_is_not_known(tmp_path: Path) -> None:
    """Not even its symbols: the C library in its place has none of them."""
    maps = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    shutil.copy(next(line.split()[-1] for line in maps if "/libc.so" in line), tmp_path / "libuct_cuda.so.0")
    program = (
        "import ctypes, sys; ctypes.CDLL(sys.argv[1])\n"
        "from pdinference.engine.scripts import pdinference_cuda_ipc as it\n"
        "print(it.release_dead(), it.unknown_library())"
    )
    line = [sys.executable, "-c", program, str(tmp_path / "libuct_cuda.so.0")]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"{cuda_ipc.Released()} {tmp_path}/libuct_cuda.so.0"
