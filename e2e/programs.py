"""The programs that this repository may start: what a fresh Debian 12 has, and what the repository installs or builds.

A developer's machine has more, and what works only there fails for everybody else. So tests and tools run as if nothing
else were installed: `restrict()` lets each start of another program fail as it would fail on a fresh machine.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from e2e.cluster import paths

_REPOSITORY: Final = Path(__file__).parent.parent
_SYSTEM: Final = ("/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/lib/cni")
UV: Final = _REPOSITORY / ".uv" / "bin" / "uv"
"""uv, as bootstrap.sh installs it."""

BASE: Final = frozenset({"apt", "bash", "coreutils", "dash", "dpkg", "grep", "libc-bin", "mawk", "sed", "util-linux"})
"""Debian packages that every Debian has."""
PROGRAMS: Final[Mapping[str, str]] = {
    "apt-get": "apt",
    "awk": "mawk",
    "bash": "bash",
    "buildah": "buildah",
    "cat": "coreutils",
    "containerd": "containerd",
    "cp": "coreutils",
    "ctr": "containerd",
    "curl": "curl",
    "date": "coreutils",
    "dpkg-query": "dpkg",
    "env": "coreutils",
    "etcd": "etcd-server",
    "fallocate": "util-linux",
    "grep": "grep",
    "head": "coreutils",
    "ip": "iproute2",
    "ldconfig": "libc-bin",
    "mmdebstrap": "mmdebstrap",
    "mktemp": "coreutils",
    "nft": "nftables",
    "nsenter": "util-linux",
    "openssl": "openssl",
    "sed": "sed",
    "seq": "coreutils",
    "setpriv": "util-linux",
    "setsid": "util-linux",
    "sh": "dash",
    "sha256sum": "coreutils",
    "sleep": "coreutils",
    "sysctl": "procps",
    "umount": "mount",
}
"""Programs of Debian that may be started, each with its package."""
PREREQUISITES: Final = frozenset({"git", "go"})
"""What the README asks for; git cloned the repository, and may be missing where it came as an archive."""


def restrict() -> None:
    """From now on, let each start of a program that a fresh machine lacks fail with FileNotFoundError."""
    sys.addaudithook(_refuse)


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "subprocess.Popen":
        program, command, _, environment = arguments
        _require_allowed(program, command, environment)


def _require_allowed(program: Any, command: Sequence[Any], environment: Mapping[Any, Any] | None) -> None:
    name = os.fsdecode(program if program is not None else command[0])
    search = os.environ if environment is None else environment
    found = shutil.which(name, path=search.get("PATH"))
    if found is not None and not is_allowed(Path(found)):
        raise FileNotFoundError(
            f"{found} is not part of a fresh Debian 12, and nothing here installs it. Use what .venv, .uv or "
            "`python -m e2e.cluster prepare` provides, or add the program and its package to e2e/programs.py."
        )


def is_allowed(program: Path) -> bool:
    """Whether a fresh machine has this file once the README's commands ran.

    Args:
        program: Its absolute path.
    """
    if program.name in PREREQUISITES:
        return True
    if str(program.parent) in _SYSTEM:
        return program.name in PROGRAMS
    # Links stay as they are: .venv/bin/python is ours, wherever it leads.
    return any(Path(os.path.abspath(program)).is_relative_to(folder) for folder in _own_folders())  # noqa: PTH100


def _own_folders() -> list[Path]:
    """Where this repository puts programs, and where tests write theirs."""
    return [_REPOSITORY, Path(sys.prefix), paths.cache(), paths.state(), Path(tempfile.gettempdir())]
