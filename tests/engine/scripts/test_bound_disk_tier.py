"""The sidecar that limits a disk tier, on real files."""

import os
from pathlib import Path

import pytest

from pdinference.engine.scripts.bound_disk_tier import bound, release

BLOCK = 1000


def block(folder: Path, name: str, *, written: int, read: int | None = None, suffix: str = ".bin") -> Path:
    path = folder / "model" / name[0] / f"{name}{suffix}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(BLOCK))
    os.utime(path, (written if read is None else read, written))
    return path


def names(folder: Path) -> set[str]:
    return {path.stem for path in folder.rglob("*") if path.is_file()}


def test_what_was_not_used_for_longest_goes_first(tmp_path: Path) -> None:
    for number in range(10):
        block(tmp_path, f"b{number}", written=number)
    bound(tmp_path.as_posix(), 10 * BLOCK)
    assert names(tmp_path) == {f"b{number}" for number in range(2, 10)}


def test_reading_a_block_keeps_it(tmp_path: Path) -> None:
    for number in range(10):
        block(tmp_path, f"b{number}", written=number, read=99 if number == 0 else None)
    bound(tmp_path.as_posix(), 10 * BLOCK)
    assert names(tmp_path) == {"b0", *(f"b{number}" for number in range(3, 10))}


def test_as_long_as_there_is_room_nothing_goes(tmp_path: Path) -> None:
    for number in range(9):
        block(tmp_path, f"b{number}", written=number)
    bound(tmp_path.as_posix(), 10 * BLOCK)
    assert len(names(tmp_path)) == 9


def test_only_blocks_are_deleted(tmp_path: Path) -> None:
    kept = [
        block(tmp_path, "config", written=0, suffix=".json"),
        block(tmp_path, "new", written=0, suffix=".bin_1.tmp"),
    ]
    for number in range(10):
        block(tmp_path, f"b{number}", written=1 + number)
    bound(tmp_path.as_posix(), 5 * BLOCK)
    assert all(path.exists() for path in kept)
    assert names(tmp_path) >= {"b8", "b9"}


def test_a_file_that_somebody_else_deletes_meanwhile_is_no_trouble(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pods of one role may share a volume, each with a side-car."""
    for number in range(10):
        block(tmp_path, f"b{number}", written=number)
    unlink = Path.unlink

    def after_somebody_else(path: Path) -> None:
        if path.stem == "b0":
            unlink(path)
        unlink(path)

    monkeypatch.setattr(Path, "unlink", after_somebody_else)
    bound(tmp_path.as_posix(), 10 * BLOCK)
    assert "b9" in names(tmp_path)
    assert len(names(tmp_path)) <= 8


def test_the_memory_of_a_container_that_died_is_freed(tmp_path: Path) -> None:
    """vLLM 0.32 leaves the CPU tier's file behind, which outlives the container: the next one would find no room."""
    tier, other = tmp_path / "vllm_offload_1234.mmap", tmp_path / "psm_1234"
    tier.write_bytes(b"x")
    other.write_bytes(b"x")
    made = tier.stat().st_ctime
    longest_start = 600  # how long vLLM waits for its workers (VLLM_ENGINE_READY_TIMEOUT_S); each maps the file
    release(tmp_path.as_posix(), made + longest_start)
    assert tier.exists()
    release(tmp_path.as_posix(), made + 2 * longest_start)
    assert (tier.exists(), other.exists()) == (False, True)
