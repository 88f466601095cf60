"""What the machine must offer: Linux, root, and a few of Debian's packages."""

import os
import shutil
import subprocess
from pathlib import Path

import click

from e2e.cluster.errors import ClusterError

PACKAGES = {
    "etcd": "etcd-server",
    "containerd": "containerd",
    "runc": "runc",
    "/usr/lib/cni/ptp": "containernetworking-plugins",
    "nft": "nftables",
    "iptables": "iptables",  # host ports
    "ip": "iproute2",
    "curl": "curl",  # docs/verify.md, which a test runs
    "openssl": "openssl",
    "sysctl": "procps",
    "nsenter": "util-linux",
    "mount": "mount",
}
"""The Debian packages that are installed, each by one of its programs, which shows whether it is there."""
_SBIN = "/usr/local/sbin:/usr/sbin:/sbin"
_APT_SECONDS = 600


def require_root() -> None:
    """Make sure that the caller is root.

    Raises:
        ClusterError: The caller is not.
    """
    if os.geteuid() != 0:
        raise ClusterError(
            "A cluster needs root, for network namespaces and containers: become root (sudo -E env PATH=$PATH ...)."
        )


def require() -> None:
    """Make sure that everything a cluster runs on is installed; installs Debian's packages that are missing.

    Raises:
        ClusterError: The caller is not root, or this is no Debian and something is missing.
    """
    require_root()
    # A shell opened with `su` lacks these, and kubelet and containerd look for mount, iptables and runc there.
    os.environ["PATH"] = f"{os.environ.get('PATH', '')}:{_SBIN}"
    missing = sorted({package for program, package in PACKAGES.items() if shutil.which(program) is None})
    if missing:
        _install(missing)


def _install(packages: list[str]) -> None:
    if shutil.which("apt-get") is None:
        raise ClusterError(
            f"These are missing: {', '.join(packages)} (Debian's names). Only Debian is supported here (12 is tested): "
            "install them with your system's package manager, or use a machine with Debian."
        )
    click.echo(f"Installing {', '.join(packages)}", err=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["apt-get", "update"], ["apt-get", "install", "--yes", "--no-install-recommends", *packages]):
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=_APT_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            raise ClusterError(
                f"`{' '.join(command)}` took longer than {_APT_SECONDS} s: is Debian's mirror reachable?"
            ) from None
        if done.returncode:
            reason = (done.stderr or done.stdout).strip()[-2000:]
            raise ClusterError(f"`{' '.join(command)}` failed (system: {_system()}): {reason}")


def _system() -> str:
    for line in Path("/etc/os-release").read_text().splitlines():
        if line.startswith("PRETTY_NAME="):
            return line.partition("=")[2].strip('"')
    return "unknown"
