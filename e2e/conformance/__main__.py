"""`make conformance`: install the operator, run the checks, write the evidence, and leave nothing behind."""

import json
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click
import httpx
import yaml
from rich.markup import escape

from e2e.cluster import Cluster
from e2e.cluster.errors import ClusterError
from e2e.conformance import gang, local_platform
from e2e.conformance.bench import CHART_NAME, NAMESPACE, Bench
from e2e.conformance.checklist import REQUIREMENTS
from e2e.conformance.checks import CHECKS, OF_THE_PLATFORM, examine
from e2e.conformance.evidence import Evidence, Verdict, complete
from e2e.conformance.page import page, summary, table
from e2e.console import console, headline, say
from e2e.demo import cluster_option, pushed_images
from e2e.images import ImageError, project_version
from e2e.install import (
    LOCAL_VALUES,
    REPOSITORY,
    ImageReferences,
    create_namespace,
    example,
    install_operator,
    local_references,
    uninstall_operator,
)
from e2e.kubectl import Kubectl, KubectlError
from e2e.local import cluster_with_images
from e2e.waiting import WaitTimeoutError

OUTPUT: Final = REPOSITORY / "dist" / "conformance"
PAGE: Final = "evidence.md"


@click.command()
@cluster_option
@click.option(
    "--name",
    envvar="PDINFERENCE_CLUSTER",
    default="conformance",
    show_default=True,
    show_envvar=True,
    help="Name of the local cluster. One that is there already is used, and stays.",
)
@click.option("--registry", help="With --cluster current: where operator and vllm-cpu were pushed to.")
@click.option("--tag", default=project_version, show_default=True, help="With --registry: tag of the operator.")
@click.option(
    "--resource",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="With --cluster current: a PDInference to serve in place of the tiny example, for example on GPUs.",
)
def cli(cluster: str, name: str, registry: str | None, tag: str, resource: Path | None) -> None:
    """Write evidence for the Kubernetes AI Conformance checklist into dist/conformance."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that it cleans up, as after Ctrl-C
    began = datetime.now(UTC)
    with _local(name) if cluster == "local" else _current(registry, tag, resource) as bench:
        found = _examine_all(bench, began)
    console.print(table(found))
    say(f"{summary(found)}. Page: {OUTPUT.relative_to(REPOSITORY) / PAGE}")
    if any(evidence.verdict is Verdict.NOT_MET for evidence in found):
        raise click.ClickException("A requirement is not met.")


def _examine_all(bench: Bench, began: datetime) -> list[Evidence]:
    """Run all checks. The page is written after each, so that an interrupted run has one, too."""
    shutil.rmtree(OUTPUT, ignore_errors=True)
    OUTPUT.mkdir(parents=True)
    cluster = _described(bench.kubectl)
    by_id = {requirement.id: requirement for requirement in REQUIREMENTS}
    done = [Evidence(by_id[id_], gap=gap) for id_, gap in OF_THE_PLATFORM.items()]
    for id_ in CHECKS:
        headline(f"{id_} ({by_id[id_].level}): {by_id[id_].asks}")
        done.append(examine(by_id[id_], bench, OUTPUT))
        found = complete(REQUIREMENTS, done)
        (OUTPUT / PAGE).write_text(page(found, cluster, f"{began:%Y-%m-%d %H:%M} UTC"), encoding="utf-8")
        if id_ == "robust_controller" and done[-1].verdict is Verdict.NOT_MET:
            break  # nothing serves
    return found


@contextmanager
def _local(name: str) -> Iterator[Bench]:
    """A local cluster, with what a platform brings and checks need. It is removed unless it was there before."""
    stays = any(cluster.name == name for cluster in Cluster.all())
    try:
        cluster, built = cluster_with_images(name)
        kubectl = Kubectl(cluster.kubeconfig, NAMESPACE)
        local_platform.install(cluster, kubectl)
        images = local_references(built)
        with _bench(kubectl, images, example(images), *LOCAL_VALUES, clean=stays) as bench:
            yield bench
    finally:
        if not stays:
            headline(f"Cluster {name} is removed")
            Cluster.discard(name)


@contextmanager
def _current(registry: str | None, tag: str, resource: Path | None) -> Iterator[Bench]:
    """The cluster of the current kubeconfig. Images are needed only for what is neither installed nor given."""
    kubectl = Kubectl(None, NAMESPACE)
    if resource is None or not _operator_image(kubectl):
        images = pushed_images(registry, tag, "conformance")
    else:
        images = ImageReferences(operator="", vllm="")
    document = example(images) if resource is None else yaml.safe_load(resource.read_text(encoding="utf-8"))
    with _bench(kubectl, images, document) as bench:
        yield bench


@contextmanager
def _bench(
    kubectl: Kubectl, images: ImageReferences, document: dict[str, Any], *values: str, clean: bool = True
) -> Iterator[Bench]:
    """The operator and an empty namespace. An operator that was there before is left as it is.

    Args:
        kubectl: The cluster.
        images: For what is not in the cluster.
        document: The PDInference that serves.
        values: Of the operator's chart.
        clean: Whether all is removed at the end, as the cluster itself is not.
    """
    headline("The operator, from its Helm chart")
    before = _operator_image(kubectl)
    try:
        if before:
            say(f"It is installed already ({before}), and stays.")
        installed = "" if before else install_operator(kubectl, images, *gang.VALUES, *values)
        _remove_namespace(kubectl)  # of a run that was killed
        create_namespace(kubectl)
        yield Bench(kubectl, document, before or images.operator, installed)
    finally:
        if clean:
            headline("What the checks made is removed")
            _remove_namespace(kubectl)
            if not before:
                uninstall_operator(kubectl)


def _operator_image(kubectl: Kubectl) -> str:
    """The image of the operator in the cluster; empty if there is none."""
    found = kubectl.get("deployments", "-A", "-l", f"app.kubernetes.io/name={CHART_NAME}")["items"]
    return next((str(one["spec"]["template"]["spec"]["containers"][0]["image"]) for one in found), "")


def _remove_namespace(kubectl: Kubectl) -> None:
    """No request is under way, so that pods need no time to drain. In a namespace that goes, none is made again."""
    gang.remove(kubectl)
    kubectl.run("delete", "namespace", NAMESPACE, "--ignore-not-found", "--wait=false")
    kubectl.run("delete", "pods", "--all", "--grace-period=2", "--wait=false")
    kubectl.run("wait", "namespace", NAMESPACE, "--for=delete", "--timeout=180s", timeout=200)


def _described(kubectl: Kubectl) -> str:
    """Kubernetes' version, the nodes and their devices."""
    version = json.loads(kubectl.run("version", "-o", "json"))["serverVersion"]["gitVersion"]
    nodes = kubectl.get("nodes")["items"]
    runtimes = {node["status"]["nodeInfo"]["containerRuntimeVersion"] for node in nodes}
    extended = {
        name for node in nodes for name, count in node["status"]["allocatable"].items() if "/" in name and count != "0"
    }
    return (
        f"Kubernetes {version}, {len(nodes)} nodes ({', '.join(sorted(runtimes))}), extended resources of the nodes: "
        f"{', '.join(sorted(extended)) or 'none'}."
    )


def main() -> None:
    """Run the command; what a person can mend is told without a traceback."""
    try:
        cli()
    except (ClusterError, ImageError, KubectlError, WaitTimeoutError, httpx.HTTPError) as error:
        console.print(f"[bold red]Error:[/bold red] {escape(str(error))}")
        sys.exit(1)


if __name__ == "__main__":
    main()
