"""A cluster as one object: brought up, repaired, taken down."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import click

from e2e.cluster import (
    addons,
    api,
    build,
    buildah,
    controlplane,
    debian,
    images,
    network,
    node,
    paths,
    pki,
    spec,
    teardown,
)
from e2e.cluster.commands import run
from e2e.cluster.errors import ClusterError
from e2e.cluster.files import locked
from e2e.cluster.processes import Component
from e2e.cluster.spec import ClusterSpec
from e2e.cluster.waiting import wait_until

DEFAULT_NAME = "pdinference"


class Cluster:
    """A running cluster; as a context manager it is taken down at the end."""

    def __init__(self, cluster: ClusterSpec) -> None:
        self.spec = cluster

    @classmethod
    def up(
        cls,
        name: str = DEFAULT_NAME,
        *,
        nodes: int = 2,
        audit: bool = True,
        kwok: bool = False,
        dra: bool = True,
        policies: bool = False,
    ) -> Self:
        """Bring a cluster up; one that runs is left alone, and what is missing of it is repaired.

        Args:
            name: Tells it from other clusters on this machine.
            nodes: 0 is a control plane alone, up in seconds.
            audit: Whether the API server writes an audit log.
            kwok: Whether fake nodes and their pods are kept alive; they need the annotation `kwok.x-k8s.io/node=fake`.
            dra: Whether the API server serves dynamic resource allocation; those before Kubernetes 1.34 do not.
            policies: Whether the nodes enforce NetworkPolicies.

        Raises:
            ClusterError: It does not come up, or runs already with other options.
        """
        spec.check(name, nodes)
        dra = dra and not build.oldest()
        debian.require()
        build.prepare(_tools(nodes, kwok=kwok, policies=policies))
        with _lock(name):
            found = ClusterSpec.load(name)
            if found is None:
                return cls._create(name, nodes=nodes, audit=audit, kwok=kwok, dra=dra, policies=policies)
            asked = (nodes, audit, kwok, dra, policies)
            if (found.nodes, found.audit, found.kwok, found.dra, found.policies) != asked:
                raise ClusterError(
                    f"Cluster {name} exists with nodes={found.nodes}, audit={found.audit}, kwok={found.kwok}, "
                    f"dra={found.dra}, policies={found.policies}. "
                    f"Ask for the same, or take it down first: python -m e2e.cluster down --name {name}"
                )
            return cls._repair(found)

    @classmethod
    @contextmanager
    def fresh(
        cls, name: str, *, nodes: int, kwok: bool = False, dra: bool = True, policies: bool = False
    ) -> Iterator[Self]:
        """As `up`, for the time of a block, and without anything that a killed run left: tests count what they find.

        It is taken down as well if it is interrupted while it comes up.

        Raises:
            ClusterError: It does not come up.
        """
        cls.discard(name)
        try:
            yield cls.up(name, nodes=nodes, kwok=kwok, dra=dra, policies=policies)
        finally:
            cls.discard(name)

    @classmethod
    def discard(cls, name: str) -> None:
        """Take a cluster down if there is one of that name."""
        if (found := ClusterSpec.load(name)) is not None:
            cls(found).down()

    @classmethod
    def find(cls, name: str = DEFAULT_NAME) -> Self:
        """Get hold of a cluster that was brought up before.

        Raises:
            ClusterError: There is none of that name.
        """
        found = ClusterSpec.load(name)
        if found is None:
            raise ClusterError(f"There is no cluster {name}: python -m e2e.cluster up --name {name}")
        return cls(found)

    @classmethod
    def all(cls) -> list[Self]:
        """Every cluster of this machine."""
        return [cls(found) for found in ClusterSpec.load_all()]

    @property
    def name(self) -> str:
        """Its name."""
        return self.spec.name

    @property
    def kubeconfig(self) -> Path:
        """For its administrator, usable on the host."""
        return self.spec.kubeconfig

    @property
    def audit_log(self) -> Path:
        """The API server's audit log: one JSON object a line."""
        return self.spec.audit_log

    @property
    def host_address(self) -> str:
        """Where its pods and its API server reach a process on the host."""
        return self.spec.host_address

    def kubectl(self, *words: str | Path, stdin: str | None = None, timeout: float = 60) -> str:
        """Run kubectl as administrator and return what it prints."""
        return run([build.binary("kubectl"), f"--kubeconfig={self.kubeconfig}", *words], stdin=stdin, timeout=timeout)

    def components(self) -> list[Component]:
        """Its processes, in the order in which they start."""
        nodes = [component for one in self.spec.node_specs for component in node.components(one)]
        return [*controlplane.components(self.spec), *nodes]

    def start_component(self, name: str) -> None:
        """Start one of its processes and wait until it serves; a no-op when it runs."""
        self._component(name).ensure()

    def stop_component(self, name: str, *, kill: bool = False) -> None:
        """Stop one of its processes, with SIGKILL if asked; `start_component` or `up` starts it again."""
        self._component(name).stop(sign=signal.SIGKILL if kill else signal.SIGTERM)

    def load_image(self, image: str | Path, *, storage: Path = buildah.DEFAULT_STORAGE) -> None:
        """Load an image into all nodes, and for clusters to come.

        Args:
            image: The name of an image that buildah has built here, or the file name of a docker or OCI archive.
            storage: Where buildah keeps its images.
        """
        source = images.find(image, storage)
        images.store(source)
        for one in self.spec.node_specs:
            node.load_image(one, source)

    def down(self) -> None:
        """Remove everything that belongs to it."""
        with _lock(self.name):
            teardown.remove(self.spec)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.down()

    def _component(self, name: str) -> Component:
        components = {component.name: component for component in self.components()}
        if name not in components:
            raise ClusterError(f"Cluster {self.name} has no component {name}; it has {', '.join(components)}.")
        return components[name]

    @classmethod
    def _create(cls, name: str, *, nodes: int, audit: bool, kwok: bool, dra: bool, policies: bool) -> Self:
        with locked(paths.clusters() / ".lock"):  # two clusters must not choose the same network
            index = network.free_index({other.index for other in ClusterSpec.load_all()})
            cluster = ClusterSpec(
                name=name, nodes=nodes, audit=audit, kwok=kwok, index=index, dra=dra, policies=policies
            )
            cluster.save()
        network.create(cluster)
        return cls(cluster)._ensure()

    @classmethod
    def _repair(cls, cluster: ClusterSpec) -> Self:
        """Start what is missing, or begin anew where that is hopeless (a reboot, or a run killed very early)."""
        if network.exists(cluster):
            try:
                return cls(cluster)._ensure()
            except ClusterError as error:
                click.echo(f"Cluster {cluster.name} can't be repaired, so it is made anew: {error}", err=True)
        teardown.remove(cluster)
        return cls._create(
            cluster.name,
            nodes=cluster.nodes,
            audit=cluster.audit,
            kwok=cluster.kwok,
            dra=cluster.dra,
            policies=cluster.policies,
        )

    def _ensure(self) -> Self:
        pki.ensure(self.spec)
        controlplane.ensure(self.spec)
        account = "/api/v1/namespaces/default/serviceaccounts/default"  # without it, no pod can be created
        wait_until("the default service account", lambda: api.get(self.spec, account) is not None, timeout=120)
        if self.spec.nodes:
            node.ensure_all(self.spec.node_specs)
            addons.ensure_dns(self.spec)
        return self


def _tools(nodes: int, *, kwok: bool, policies: bool) -> list[str]:
    on_nodes = ["node", "coredns", "tiny", *(["policy-agent"] if policies else [])]
    return [build.control_plane(), *(on_nodes if nodes else []), *(["kwok"] if kwok else [])]


@contextmanager
def _lock(name: str) -> Iterator[None]:
    """Let one process at a time change a cluster."""
    with locked(paths.clusters() / f".{name}.lock"):
        yield
