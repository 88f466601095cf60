"""`make demo`: the main job, for real, shown to a person."""

import sys
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit
from uuid import uuid4

import click
import httpx
from rich.markup import escape
from rich.table import Table

from e2e.cluster import Cluster
from e2e.cluster.errors import ClusterError
from e2e.cluster.paths import binaries
from e2e.console import console, headline, recorded, say
from e2e.images import IMAGES, ImageError, project_version
from e2e.install import (
    LOCAL_VALUES,
    ImageReferences,
    apply,
    create_namespace,
    example,
    install_operator,
    local_references,
    uninstall_operator,
)
from e2e.kubectl import Kubectl, KubectlError
from e2e.local import cluster_with_images
from e2e.requests import Answer, chat, complete
from e2e.transfer import Transfer, settled
from e2e.waiting import WaitTimeoutError, wait_ready

NAMESPACE = "pdinference-demo"
NAME = "tiny"

# The tokenizer is one of bytes, and a KV block holds 128 tokens: this is about nine full blocks.
LONG_PROMPT = "Prefill computes the keys and values of every prompt token once; decode reads them ever after. " * 12
_REQUESTS = 2


@click.group()
def cli() -> None:
    """Show the operator at work."""


cluster_option: Final = click.option(
    "--cluster",
    type=click.Choice(["local", "current"]),
    default="local",
    show_default=True,
    help="A cluster made on this machine, or the one of the current kubeconfig.",
)

name_option: Final = click.option(
    "--name",
    envvar="PDINFERENCE_CLUSTER",
    default="demo",
    show_default=True,
    show_envvar=True,
    help="Name of the local cluster.",
)


@cli.command()
@cluster_option
@name_option
@click.option("--registry", help="With --cluster current: where operator and vllm-cpu were pushed to.")
@click.option("--tag", default=project_version, show_default=True, help="With --registry: tag of the operator.")
@click.option("--record", type=click.Path(dir_okay=False, path_type=Path), help="SVG file for a picture of the run.")
def up(cluster: str, name: str, registry: str | None, tag: str, record: Path | None) -> None:
    """Bring everything up, send requests, and show that the KV cache moved."""
    with recorded(record, "make demo"):
        _show_all(name if cluster == "local" else None, registry, tag)


def _show_all(local: str | None, registry: str | None, tag: str) -> None:
    """Show it on a local cluster of this name, or else on the current one."""
    kubectl, images = _local(local) if local else (Kubectl(None, NAMESPACE), pushed_images(registry, tag, "demo"))

    headline("The operator, from its Helm chart")
    install_operator(kubectl, images, *(LOCAL_VALUES if local else ()))

    headline("One PDInference")
    create_namespace(kubectl)
    apply(kubectl, example(images))
    say("kubectl apply -f examples/tiny-cpu.yaml")
    resource = wait_ready(kubectl, NAME)

    headline("Requests through the router")
    before = settled(kubectl, NAME)
    port = urlsplit(resource["status"]["url"]).port or 80
    with kubectl.port_forward(f"service/{NAME}", port) as url:
        _show("chat completion", chat(url, NAME, "What is the KV cache?"))
        # P and D have the KV cache of a prompt that was sent before, and would move its last block alone.
        unique = f"{uuid4()}: {LONG_PROMPT}"
        _show("completion of a long prompt", complete(url, NAME, unique, max_tokens=64))
    moved = settled(kubectl, NAME) - before

    headline("What vLLM itself counted for these two requests")
    _show_transfer(moved)
    if moved.transfers > _REQUESTS:
        say(f"{moved.transfers:.0f} transfers for {_REQUESTS} requests: others sent some, too, or one was repeated.")
    if not (moved.bytes and moved.moved_to_decode and not moved.failed):
        raise click.ClickException("The KV cache did not move from P to D.")
    _show_next(kubectl, local)


@cli.command()
@cluster_option
@name_option
def down(cluster: str, name: str) -> None:
    """Remove what `up` made: the local cluster, or operator and example from the current one."""
    if cluster == "local":
        _stop(name)
        return
    kubectl = Kubectl(None, NAMESPACE)
    kubectl.run("delete", "pdi", NAME, "--ignore-not-found", "--wait", "--cascade=foreground", timeout=300)
    kubectl.run("delete", "namespace", NAMESPACE, "--ignore-not-found", timeout=300)
    uninstall_operator(kubectl)


def _stop(name: str) -> None:
    """Remove a local cluster, and name those that stay."""
    Cluster.discard(name)
    for left in Cluster.all():
        say(f"Cluster {left.name} stays. `make down PDINFERENCE_CLUSTER={left.name}` removes it, `make clean` all.")


def _local(name: str) -> tuple[Kubectl, ImageReferences]:
    cluster, built = cluster_with_images(name)
    return Kubectl(cluster.kubeconfig, NAMESPACE), local_references(built)


def pushed_images(registry: str | None, tag: str, target: str) -> ImageReferences:
    """The images in a registry, for a target of make.

    Raises:
        click.ClickException: No registry is given.
    """
    if not registry:
        raise click.ClickException(
            "CLUSTER=current needs REGISTRY=<where you pushed the images>, for example\n"
            f"  make {target} CLUSTER=current REGISTRY=registry.example.com/pdinference\n"
            "docs/quick-start.md describes how to build and push them."
        )
    # The operator reads the release of vLLM from the tag, and `make release` pushes with it.
    return ImageReferences(f"{registry}/operator:{tag}", f"{registry}/vllm-cpu:{IMAGES['vllm-cpu'].tag}")


def _show(what: str, answer: Answer) -> None:
    say(
        f"{what}: {answer.prompt_tokens} prompt tokens, {answer.completion_tokens} generated, in {answer.seconds:.2f} s"
    )
    console.print(f"         (random weights, so random words) {answer.text!r}", markup=False)


def _show_transfer(moved: Transfer) -> None:
    table = Table("where", "what", "count", title_justify="left")
    table.add_row("P (prefill)", "prompt tokens computed", f"{moved.computed_on_parameter:.0f}")
    table.add_row("D (decode)", "prompt tokens found on P (external prefix cache hits)", f"{moved.moved_to_decode:.0f}")
    table.add_row("D (decode)", "prompt tokens it had to compute itself", f"{moved.computed_on_decode:.0f}")
    table.add_row("P -> D", "KV cache moved by NIXL", f"{moved.bytes / 2**20:.2f} MiB in {moved.transfers:.0f} pulls")
    table.add_row("P -> D", "time for that", f"{moved.seconds * 1000:.1f} ms")
    table.add_row("P -> D", "failed pulls", f"{moved.failed:.0f}")
    console.print(table)


def _show_next(kubectl: Kubectl, local: str | None) -> None:
    for resource in ("pdi", "pods"):  # one by one, they have short names and fit 80 columns
        console.print(kubectl.run("get", resource), markup=False, soft_wrap=True)
    console.print("Try next:")
    programs = f"{Path(sys.executable).parent}:$PATH"  # kubectl finds its plug-in there
    if local:
        console.print(f"  export KUBECONFIG={Cluster.find(local).kubeconfig} PATH={binaries()}:{programs}")
    else:
        console.print(f"  export PATH={programs}")
    for command in (
        f"kubectl pdi status {NAME} -n {NAMESPACE}",
        f"kubectl pdi chat {NAME} 'What is a KV cache?' -n {NAMESPACE}",
        f"kubectl -n {NAMESPACE} scale pdi {NAME} --replicas=2",
    ):
        console.print(f"  {command}", markup=False)
    if local:
        console.print("The cluster stays up. `make down` removes it; docs/quick-start.md lists what stays.")
    else:
        console.print("All stays in the cluster. `make clean CLUSTER=current` removes it.")


def main() -> None:
    """Run a command; what a person can mend is told without a traceback."""
    try:
        cli()
    except (ClusterError, ImageError, KubectlError, WaitTimeoutError, httpx.HTTPError) as error:
        console.print(f"[bold red]Error:[/bold red] {escape(str(error))}")
        console.print(f"Run it again to go on from here. Logs: {Path('/var/lib/pdinference')}")
        sys.exit(1)


if __name__ == "__main__":
    main()
