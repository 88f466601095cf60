"""The command line."""

import contextlib
import shutil
import sys
from pathlib import Path

import click

from e2e.cluster import build, buildah, debian, images, paths
from e2e.cluster.cluster import DEFAULT_NAME, Cluster
from e2e.cluster.errors import ClusterError

_name = click.option("--name", default=DEFAULT_NAME, show_default=True, help="Which cluster.")


@click.group()
def cli() -> None:
    """A Kubernetes cluster on this machine, without Docker."""


@cli.command()
@click.argument("tools", nargs=-1, type=click.Choice(list(build.TOOLS)))
def prepare(tools: tuple[str, ...]) -> None:
    """Install and build what clusters need: all of it, or only TOOLS.

    Another control plane than the ordinary one is built only by name, or when PDINFERENCE_KUBERNETES chooses it.
    """
    debian.require()
    build.prepare(tools or [*(name for name, tool in build.TOOLS.items() if tool.linked), build.control_plane()])


@cli.command()
@_name
@click.option("--nodes", default=2, show_default=True, help="0 is a control plane alone.")
@click.option("--audit/--no-audit", default=True, show_default=True, help="Write an audit log.")
@click.option("--kwok", is_flag=True, help="Keep fake nodes alive.")
@click.option("--policies", is_flag=True, help="Enforce NetworkPolicies on the nodes.")
def up(name: str, nodes: int, audit: bool, kwok: bool, policies: bool) -> None:
    """Bring a cluster up, or repair it."""
    cluster = Cluster.up(name, nodes=nodes, audit=audit, kwok=kwok, policies=policies)
    click.echo(f"export KUBECONFIG={cluster.kubeconfig}")


@cli.command()
@_name
def down(name: str) -> None:
    """Remove a cluster; there may be none."""
    debian.require_root()
    if any(cluster.name == name for cluster in Cluster.all()):
        Cluster.find(name).down()


@cli.command()
@_name
def status(name: str) -> None:
    """Tell which parts of a cluster run, and where its files are."""
    cluster = Cluster.find(name)
    for component in cluster.components():
        pid = component.pid()
        click.echo(f"{component.name:26} {f'runs ({pid})' if pid else 'does not run':16} {component.log}")
    click.echo(f"export KUBECONFIG={cluster.kubeconfig} PATH={paths.binaries()}:$PATH")


@cli.command("load-image")
@_name
@click.option(
    "--storage", type=click.Path(path_type=Path), default=buildah.DEFAULT_STORAGE, show_default=True, help="buildah's."
)
@click.argument("image")
def load_image(name: str, storage: Path, image: str) -> None:
    """Load an image into a cluster's nodes and into the store from which nodes are made.

    IMAGE is the name of an image that buildah has built here, which costs next to nothing, or the file name of a
    docker or OCI archive, which is unpacked for each running node: load large archives before `up`.
    """
    debian.require()
    images.store(images.find(image, storage))
    for cluster in Cluster.all():
        if cluster.name == name:
            cluster.load_image(image, storage=storage)


@cli.command()
def clean() -> None:
    """Remove all clusters, their images and the built binaries.

    Go's own caches stay (`go clean -cache -modcache`), and so does whatever else is in the cache folder.
    """
    debian.require_root()
    for cluster in Cluster.all():
        cluster.down()
    images.delete_store()
    shutil.rmtree(paths.clusters(), ignore_errors=True)
    shutil.rmtree(paths.binaries(), ignore_errors=True)
    for folder in (paths.cache(), paths.state()):
        with contextlib.suppress(OSError):  # not empty, or not there
            folder.rmdir()


@cli.command()
@_name
def kubeconfig(name: str) -> None:
    """Print the path of a cluster's kubeconfig."""
    click.echo(Cluster.find(name).kubeconfig)


def main() -> None:
    """Run a command; what a person can mend is told without a traceback."""
    try:
        cli()
    except ClusterError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(1)
