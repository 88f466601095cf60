"""The `pdinference` command."""

import sys
from collections.abc import Iterable, Iterator
from typing import IO, Any

import click
import yaml

from pdinference.api import names
from pdinference.api.crd import custom_resource_definition
from pdinference.api.v1alpha1 import PDInference
from pdinference.api.validation import InvalidResourceError, validated
from pdinference.manifests import RenderSettings, render


@click.group()
@click.version_option(package_name="pdinference")
def main() -> None:
    """Serve large language models with vLLM on Kubernetes, prefill and decode apart."""


@main.command()
def crd() -> None:
    """Print the CustomResourceDefinition."""
    _print_yaml([custom_resource_definition()])


@main.command("render")
@click.option(
    "-f",
    "--file",
    "source",
    type=click.File(encoding="utf-8"),
    required=True,
    help="File with PDInference resources; - reads standard input.",
)
@click.option("-n", "--namespace", default=None, help="Namespace of resources that name none.  [default: default]")
@click.option(
    "--router-image",
    default=names.DEFAULT_ROUTER_IMAGE,
    show_default=True,
    help="Router image of resources that name none.",
)
def render_command(source: IO[str], namespace: str | None, router_image: str) -> None:
    """Print what the operator would apply, without a cluster."""
    settings = RenderSettings(router_image=router_image)
    for resource in _resources(source, namespace):
        _print_yaml(render(resource, settings).objects)


def _resources(source: IO[str], namespace: str | None) -> Iterator[PDInference]:
    """Read the PDInference documents of a file; other kinds, as in any file for kubectl, are passed over."""
    try:
        documents = [document for document in yaml.load_all(source, Loader=yaml.CSafeLoader) if document]
    except yaml.YAMLError as error:
        raise click.ClickException(f"{source.name} is not YAML: {error}") from None
    wanted = [document for document in documents if isinstance(document, dict) and document.get("kind") == names.KIND]
    if not wanted:
        raise click.ClickException(f"{source.name} holds no resource of kind {names.KIND}.")
    for document in wanted:
        yield _resource(document, namespace, source.name)


def _resource(document: dict[str, Any], namespace: str | None, file: str) -> PDInference:
    if namespace is not None and isinstance(metadata := document.get("metadata"), dict):
        metadata.setdefault("namespace", namespace)
    try:
        return validated(document)
    except InvalidResourceError as error:
        problems = "\n".join(f"  {problem}" for problem in error.problems)
        name = (document.get("metadata") or {}).get("name", "without a name")
        raise click.ClickException(f"{file}: {names.KIND} {name} is not valid.\n{problems}") from None


class _PlainDumper(yaml.CSafeDumper):
    """Writes every object out in full: anchors and aliases are legal YAML, and hard to read."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _print_yaml(objects: Iterable[Any]) -> None:
    yaml.dump_all(objects, sys.stdout, Dumper=_PlainDumper, sort_keys=False, explicit_start=True, width=120)
