"""The local cluster's own tests, once for each state of what they test: `python -m e2e.scaffolding`.

They take minutes and say nothing of the operator. What passed is recorded beside the built binaries, so a fresh machine
runs them, and `make clean` forgets it.
"""

import hashlib
import platform
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from e2e.cluster import build, paths
from e2e.cluster.commands import run
from e2e.cluster.debian import PACKAGES
from e2e.cluster.files import write_atomically

_FOLDER = Path(__file__).parent
TESTS = _FOLDER / "test_cluster.py"
_SOURCES = (_FOLDER / "cluster", _FOLDER / "tools", TESTS, _FOLDER / "conftest.py", _FOLDER / "programs.py")


def digest() -> str:
    """Of all that these tests depend on: sources, built binaries, Debian's packages, the kernel."""
    found = hashlib.sha256()
    for path in _files():
        found.update(f"{path.relative_to(_FOLDER)}\0".encode() + path.read_bytes())
    versions = run(["dpkg-query", "--show", *sorted(PACKAGES.values())])
    binaries = sorted(tool.folder.name for tool in build.TOOLS.values())
    found.update(f"{versions} {binaries} {platform.release()} {sys.version}".encode())
    return found.hexdigest()


def _files() -> Iterator[Path]:
    for source in _SOURCES:
        for path in [source] if source.is_file() else sorted(source.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield path


def main() -> int:
    """Run them unless they have passed; the exit status comes back."""
    record, current = paths.binaries() / "cluster-tested", digest()
    if record.exists() and record.read_text(encoding="utf-8") == current:
        click.echo(f"The local cluster has passed its tests as it is. To run them again: rm {record}")
        return 0
    code = int(pytest.main([str(TESTS)]))
    if code == 0:
        write_atomically(record, current)
    return code


if __name__ == "__main__":
    sys.exit(main())
