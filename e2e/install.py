"""The operator and an example, installed as a user would: with helm and kubectl."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from e2e.console import say
from e2e.images import BuiltImage
from e2e.kubectl import Kubectl
from pdinference.api.crd import definitions
from pdinference.api.names import LABEL_NAME

REPOSITORY = Path(__file__).parent.parent
CHART = REPOSITORY / "charts" / "pdinference-operator"
TINY_EXAMPLE = REPOSITORY / "examples" / "tiny-cpu.yaml"
OPERATOR_NAMESPACE = "pdinference-system"
RELEASE = "pdinference"
LOCAL_VALUES = ("rbac.batchConfigMaps=true",)
"""Values of the chart on a local cluster: it has no volumes for the answers of a batch (docs/batch.md)."""


@dataclass(frozen=True)
class ImageReferences:
    """The images, as `repository:tag`.

    Attributes:
        router: The router's, if it is not the operator's, as in earlier releases.
        build: Identity of the operator image behind its tag, so that a new build under the same tag replaces the pod.
    """

    operator: str
    vllm: str
    build: str = ""
    router: str = ""


def local_references(built: Mapping[str, BuiltImage]) -> ImageReferences:
    """The images that were built on this machine."""
    operator, vllm = (built[name] for name in ("operator", "vllm-cpu"))
    return ImageReferences(operator.reference, vllm.reference, build=operator.content)


def install_operator(kubectl: Kubectl, images: ImageReferences, *values: str, chart: Path = CHART) -> str:
    """Install or upgrade the operator from its chart, and wait until it runs.

    Args:
        kubectl: The cluster.
        images: Which operator.
        values: Further `name=value` settings of the chart.
        chart: The chart, which is this checkout's by default.

    Returns:
        The command in short.
    """
    command = f"helm upgrade --install {RELEASE} {os.path.relpath(chart, REPOSITORY)} -n {OPERATOR_NAMESPACE}"
    say(command)
    build = f"podAnnotations.build={images.build or 'released'}"
    settings = [
        *_image("image", images.operator),
        *_image("router.image", images.router or images.operator),
        *_image("model.image", images.operator),
        build,
        *values,
    ]
    kubectl.command(
        *("helm", "upgrade", "--install", RELEASE, chart, "--namespace", OPERATOR_NAMESPACE, "--create-namespace"),
        *("--wait", "--timeout", "3m"),
        *(
            word
            for setting in settings
            for word in ("--set-string" if "tag=" in setting or setting is build else "--set", setting)
        ),
        timeout=240,
    )
    return command


def uninstall_operator(kubectl: Kubectl) -> None:
    """Remove the operator, its namespace and the CRDs."""
    kubectl.command("helm", "uninstall", RELEASE, "-n", OPERATOR_NAMESPACE, "--wait", "--ignore-not-found", timeout=240)
    kubectl.run("delete", "namespace", OPERATOR_NAMESPACE, "--ignore-not-found")
    kubectl.run("delete", "crd", *definitions(), "--ignore-not-found")


def create_namespace(kubectl: Kubectl) -> None:
    """Create the namespace for models, which admits only pods of the restricted Pod Security Standard."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": kubectl.namespace, "labels": labels}}
    apply(kubectl, namespace)


def example(images: ImageReferences, path: Path = TINY_EXAMPLE) -> dict[str, Any]:
    """An example, with the engine image that was built."""
    document: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    document["spec"]["engine"]["image"] = images.vllm
    return document


def apply(kubectl: Kubectl, document: dict[str, Any]) -> None:
    """`kubectl apply` a document."""
    kubectl.run("apply", "-f", "-", stdin=yaml.safe_dump(document))


def remove_at_once(kubectl: Kubectl, *names: str) -> None:
    """Delete PDInferences and their pods without waiting for requests to drain: the next tests need the memory."""
    gone = ("--ignore-not-found", "--wait=false")
    kubectl.run("delete", "pdi", *names, *gone)
    kubectl.run("delete", "pods", "-l", f"{LABEL_NAME} in ({','.join(names)})", "--grace-period=2", *gone)


def _image(value: str, reference: str) -> list[str]:
    repository, _, tag = reference.rpartition(":")
    return [f"{value}.repository={repository}", f"{value}.tag={tag}"]
