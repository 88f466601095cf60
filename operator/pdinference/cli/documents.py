"""Reads resources from files, and reports their problems."""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import IO, Any

import click

from pdinference.api import names
from pdinference.api.validation import InvalidResourceError, refusal
from pdinference.cli.yaml_files import yaml_documents


def file_option(command: Callable[..., None]) -> Callable[..., None]:
    """Add the option for the file to read."""
    return click.option(
        "-f",
        "--file",
        "source",
        type=click.File(encoding="utf-8"),
        required=True,
        help="File with our resources; - reads standard input.",
    )(command)


def documents(source: IO[str], namespace: str | None, kinds: Collection[str] = (names.KIND,)) -> list[dict[str, Any]]:
    """Read the documents of these kinds in a file. Documents of other kinds are skipped."""
    wanted = [
        document for document in yaml_documents(source) if isinstance(document, dict) and _kind_of(document) in kinds
    ]
    if not wanted:
        raise click.ClickException(
            f"{source.name} holds no resource of kind {' or '.join(kinds)}. For a command line of vLLM or a manifest "
            "with one, `pdinference convert -f FILE` prints a resource."
        )
    for document in wanted:
        if namespace is not None and isinstance(metadata := document.get("metadata"), dict):
            metadata.setdefault("namespace", namespace)
    return wanted


def one_document(source: IO[str], namespace: str | None = None) -> dict[str, Any]:
    """Read the only PDInference in a file."""
    found = documents(source, namespace)
    if len(found) != 1:
        raise click.ClickException(f"{source.name} holds {len(found)} PDInferences. Write a file with one.")
    return found[0]


def _kind_of(document: dict[str, Any]) -> str:
    kind = document.get("kind")
    return kind if isinstance(kind, str) else ""


@contextmanager
def problems_told(document: dict[str, Any], file: str) -> Iterator[None]:
    """Exit with a message that lists all problems of a document."""
    try:
        yield
    except InvalidResourceError as error:
        raise click.ClickException(
            f"{file}: {refusal(name_of(document), error.problems, document.get('kind'))}"
        ) from None


def name_of(document: dict[str, Any]) -> object:
    """The name in a document."""
    metadata = document.get("metadata")
    return metadata.get("name") if isinstance(metadata, dict) else None
