"""Reads resources from files, and reports their problems.

Tests: tests/cli/test_files.py, tests/cli/test_commands.py
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import IO, Any, Final

import click

from pdinference.api import names
from pdinference.api.validation import InvalidResourceError, refusal
from pdinference.api.words import cut
from pdinference.cli.yaml_files import objects_in

_CONVERT: Final = "For a command line of vLLM or a manifest with one, `pdinference convert -f FILE` prints a resource."
_LONGEST_KIND, _MOST_KINDS = 63, 5


def documents(source: IO[str], namespace: str | None, kinds: Collection[str] = (names.KIND,)) -> list[dict[str, Any]]:
    """Read the documents of these kinds in a file. Those of other kinds are skipped."""
    found = [document for document in objects_in(source) if document is not None]
    wanted = [document for document in found if isinstance(document, dict) and _kind_of(document) in kinds]
    if not wanted:
        raise click.ClickException(_without(source.name, kinds, found))
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


def _without(file: str, kinds: Collection[str], found: list[Any]) -> str:
    """The message for a file without a resource of these kinds."""
    if not found:
        return f"{file} is empty. {_CONVERT}"
    others = dict.fromkeys(_kind_of(document) if isinstance(document, dict) else "" for document in found)
    named = [cut(kind, _LONGEST_KIND) for kind in others if kind]
    said = f"{file} holds no resource of kind {' or '.join(kinds)}"
    if near := next((kind for kind in kinds for other in named if other.lower() == kind.lower()), None):
        return f"{said}: capital letters count, so write kind: {near}."
    if {*named} & {names.KIND, names.BATCH_KIND}:
        return f"{said}. It has {', '.join(named)}, for `pdinference validate`."
    has = f", but {', '.join(named[:_MOST_KINDS])}" if named else ": each document needs `kind:`"
    return f"{said}{has}. {_CONVERT}"


def _kind_of(document: dict[str, Any]) -> str:
    kind = document.get("kind")
    return kind if isinstance(kind, str) else ""


@contextmanager
def problems_reported(document: dict[str, Any], file: str) -> Iterator[None]:
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
