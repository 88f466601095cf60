"""Processes of the local cluster's pods are found by the cgroups of their pods."""

import os
import shutil
from pathlib import Path
from threading import Event, Thread

import pytest

from e2e.cluster import cgroups
from e2e.cluster.spec import ClusterSpec

CLUSTER = ClusterSpec(name="cgroups", nodes=0, audit=False, kwok=False, index=0)


def _pod(folder: Path, *processes: int) -> None:
    (folder / "container").mkdir(parents=True)
    (folder / "container" / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in processes))


def test_processes_are_found_while_other_pods_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod's cgroup may go between two looks at its parent and at itself."""
    monkeypatch.setattr(cgroups, "_folders", lambda _: iter([tmp_path]))
    _pod(tmp_path / "stays", 7, 8)
    enough = Event()

    def pods_come_and_go() -> None:
        while not enough.is_set():
            _pod(tmp_path / "goes", os.getpid())
            shutil.rmtree(tmp_path / "goes")

    other = Thread(target=pods_come_and_go)
    other.start()
    try:
        for _ in range(2000):
            assert {7, 8} <= set(cgroups.processes(CLUSTER)) <= {7, 8, os.getpid()}
    finally:
        enough.set()
        other.join()
