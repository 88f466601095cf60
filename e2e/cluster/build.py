"""Binaries that Debian lacks, built from Go modules into a cache keyed by what goes into them."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from e2e.cluster import paths
from e2e.cluster.commands import run
from e2e.cluster.errors import ClusterError
from e2e.cluster.files import locked

_OLDEST_GO = (1, 24)
_GIB = 1 << 30
_TELL_SECONDS = 15
_FREE_BYTES_NEEDED = 8 * _GIB


@dataclass(frozen=True)
class Tool:
    """Binaries that are built together.

    Attributes:
        tags: Build tags, which leave out what is not needed.
        linked: Whether the binaries get their plain names; those of another Kubernetes would take its names.
    """

    name: str
    module: str
    packages: tuple[str, ...]
    tags: str = ""
    linked: bool = True

    @property
    def binaries(self) -> list[str]:
        """The names of what comes out."""
        return [Path(package).name for package in self.packages]

    @property
    def source(self) -> Path:
        """The folder of its go.mod."""
        return paths.TOOLS / self.module

    @property
    def flags(self) -> list[str]:
        """The compiler's flags; Kubernetes is told its version, which its own build takes from git."""
        linker = ["-s", "-w"]
        if found := re.search(r"k8s\.io/kubernetes (v(\d+)\.(\d+)\.\d+)", (self.source / "go.mod").read_text()):
            values = {"gitVersion": found[1], "gitMajor": found[2], "gitMinor": found[3]}
            packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
            linker += [f"-X={package}.{name}={value}" for package in packages for name, value in values.items()]
        tags = [f"-tags={self.tags}"] if self.tags else []
        # -s drops what debuggers need; not to make it at all saves a fifth of the compiler's time.
        return ["-trimpath", "-gcflags=all=-dwarf=false", f"-ldflags={' '.join(linker)}", *tags]

    @property
    def folder(self) -> Path:
        """Where the binaries are put: another folder for any other version, flag or toolchain."""
        digest = hashlib.sha256(f"{_go_version()} {self.flags} {self.packages}".encode())
        for path in sorted(self.source.rglob("*")):
            if path.is_file():
                digest.update(path.read_bytes())
        return paths.binaries() / f"{self.name}-{digest.hexdigest()[:12]}"

    @property
    def built(self) -> bool:
        """Whether nothing is left to do."""
        names = self.binaries if self.linked else []
        return self.folder.is_dir() and all((paths.binaries() / name).exists() for name in names)


OLDEST = "1.30"
"""The oldest Kubernetes that the operator supports. It has no dynamic resource allocation of version 1."""
OTHERS = (OLDEST, "1.35", "1.37")
"""Kubernetes releases whose control plane is built only when it is asked for."""
_COMMAND = "k8s.io/kubernetes/cmd"
_CONTROL_PLANE = tuple(
    f"{_COMMAND}/{name}" for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
)
TOOLS = {
    tool.name: tool
    for tool in (
        Tool("control-plane", "kubernetes", _CONTROL_PLANE),
        *(Tool(f"control-plane-{one}", f"kubernetes-{one}", _CONTROL_PLANE, linked=False) for one in OTHERS),
        Tool("node", "kubernetes", (f"{_COMMAND}/kubelet", f"{_COMMAND}/kube-proxy")),
        Tool("coredns", "addons", ("./coredns",)),
        Tool("kwok", "addons", ("sigs.k8s.io/kwok/cmd/kwok",)),
        Tool("helm", "addons", ("helm.sh/helm/v3/cmd/helm",)),
        # Without its service discovery for clouds, which is a third of it.
        Tool("prometheus", "prometheus", ("github.com/prometheus/prometheus/cmd/prometheus",), tags="remove_all_sd"),
        Tool("adapter-query", "adapter", ("./adapter-query",)),
        # What Flux (kstatus) and Argo CD (its Lua) make of an object.
        Tool("health-of", "health", ("./health-of",)),
        Tool("tiny", "tiny", ("./pause", "./probe")),
        Tool("policy-agent", "policies", ("./policy-agent",)),
        Tool("cert-manager", "certmanager", ("./cert-manager",)),
        # With its Prometheus scaler alone (trim.py).
        Tool("keda", "keda", ("./keda",)),
        # Only `make conformance` needs it.
        Tool("kueue", "kueue", ("sigs.k8s.io/kueue/cmd/kueue",), linked=False),
        # Asks registries for digests, and is a registry itself.
        Tool("crane", "registry", ("github.com/google/go-containerregistry/cmd/crane",)),
        # Validates a bundle of the Operator Lifecycle Manager.
        Tool("bundle-check", "olm", ("./bundle-check",)),
        # A collector of OpenTelemetry that prints spans.
        Tool("otel-collector", "collector", ("./otel-collector",)),
        # A server with the API of S3, whose buckets are folders.
        Tool("versitygw", "bucket", ("github.com/versity/versitygw/cmd/versitygw",)),
    )
}


def binary(name: str) -> Path:
    """The path of a built binary.

    Raises:
        ClusterError: It has not been built.
    """
    path = (_chosen(name) or paths.binaries()) / name
    if not path.exists():
        raise ClusterError(f"{name} has not been built yet: run `python -m e2e.cluster prepare`.")
    return path


def control_plane() -> str:
    """The name of the tool that clusters without nodes start: PDINFERENCE_KUBERNETES chooses another one.

    Raises:
        ClusterError: There is no such version here.
    """
    version = os.environ.get("PDINFERENCE_KUBERNETES", "")
    if version not in {"", *OTHERS}:
        raise ClusterError(
            f"Kubernetes {version} is not built here: leave PDINFERENCE_KUBERNETES empty, or set one of "
            f"{', '.join(OTHERS)}."
        )
    return f"control-plane-{version}" if version else "control-plane"


def oldest() -> bool:
    """Whether the oldest Kubernetes was chosen."""
    return control_plane() == f"control-plane-{OLDEST}"


def _chosen(name: str) -> Path | None:
    """The folder of a binary of the control plane, if another Kubernetes was chosen."""
    tool = TOOLS[control_plane()]
    return None if tool.linked or name not in tool.binaries else tool.folder


def prepare(names: Iterable[str]) -> None:
    """Build what is missing.

    A run that is interrupted leaves the packages compiled so far in Go's own cache, so that the next one goes on from
    there.
    """
    missing = [TOOLS[name] for name in names if not TOOLS[name].built]
    if not missing:
        return
    _check_disk()
    with locked(paths.binaries() / ".lock"):
        for tool in missing:
            if not tool.built:  # another process may have built it while this one waited for the lock
                _build(tool)


def _build(tool: Tool) -> None:
    if not tool.folder.is_dir():
        draft = paths.binaries() / f".{tool.name}.draft"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        _compile(tool, draft)
        draft.rename(tool.folder)
    for name in tool.binaries if tool.linked else ():
        _link(tool.folder / name)
    for old in paths.binaries().glob(f"{tool.name}-" + "?" * 12):
        if old != tool.folder:
            shutil.rmtree(old)


def _compile(tool: Tool, target: Path) -> None:
    """Run the compiler, which prints a line for each package it has compiled (-v)."""
    begin = time.monotonic()
    with _trimmed(tool) as module:
        _run_compiler(["go", "build", "-v", *module, *tool.flags, "-o", f"{target}/", *tool.packages], tool, begin)


@contextmanager
def _trimmed(tool: Tool) -> Iterator[list[str]]:
    """The flags that take a copy of a module without what no test needs, where the tool has a script that makes one."""
    script = tool.source / "trim.py"
    if not script.exists():
        yield []
        return
    with TemporaryDirectory() as folder:
        run([sys.executable, str(script), folder])
        yield [f"-modfile={folder}/go.mod"]


def _run_compiler(command: list[str], tool: Tool, begin: float) -> None:
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOWORK": "off"}
    with subprocess.Popen(
        command, cwd=tool.source, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        last_lines = _show_progress(process, ", ".join(tool.binaries), begin)
    if process.returncode:
        raise ClusterError(f"Building {', '.join(tool.binaries)} failed:\n{''.join(last_lines)}")


def _show_progress(process: "subprocess.Popen[str]", what: str, begin: float) -> list[str]:
    last_lines: list[str] = []
    count, told = 0, begin
    click.echo(f"Building {what}", err=True)
    for line in process.stdout or ():
        last_lines = [*last_lines[-19:], line]
        count += not line.startswith("go: ")
        if time.monotonic() - told > _TELL_SECONDS:
            told = time.monotonic()
            click.echo(f"  {count} packages compiled, {told - begin:.0f} s", err=True)
    click.echo(f"Built {what} in {time.monotonic() - begin:.0f} s", err=True)
    return last_lines


def _link(target: Path) -> None:
    """Point the plain name at this version, in one step."""
    draft = paths.binaries() / f".{target.name}.link"
    draft.unlink(missing_ok=True)
    draft.symlink_to(target.relative_to(paths.binaries()))
    draft.rename(paths.binaries() / target.name)


@cache
def _go_version() -> str:
    if shutil.which("go") is None:
        raise ClusterError(
            "Go is not installed, and Debian 12's is too old: install Go 1.24 or later (https://go.dev/doc/install)."
        )
    version = run(["go", "env", "GOVERSION"]).strip()
    numbers = tuple(int(part) for part in version.removeprefix("go").split(".")[:2])
    if numbers < _OLDEST_GO:
        raise ClusterError(f"{version} can't build Kubernetes: install Go 1.24 or later (https://go.dev/doc/install).")
    return version


def _check_disk() -> None:
    paths.binaries().mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(paths.binaries()).free
    if free < _FREE_BYTES_NEEDED:
        raise ClusterError(
            f"Building needs about {_FREE_BYTES_NEEDED // _GIB} GiB of disk for Go's caches; {paths.binaries()} has "
            f"{free / _GIB:.1f} GiB left. Free some, or set PDINFERENCE_CACHE and GOCACHE to a larger disk."
        )
