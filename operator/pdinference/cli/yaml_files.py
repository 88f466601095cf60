"""Reads untrusted YAML files. Errors become messages, names are unique, and aliases cannot exhaust the memory.

Tests: tests/cli/test_files.py, tests/cli/test_policy.py, tests/cli/test_convert.py
"""

from collections.abc import Iterator
from itertools import islice
from typing import IO, Any, Final

import click
import yaml

from pdinference.api.bounds import MAX_VALUES
from pdinference.api.words import cut

_MAX_CHARACTERS: Final = 16 * 2**20
_MAX_MERGED: Final = 64
_MAX_DEPTH: Final = 256
"""Maximum depth of YAML. libyaml recurses and crashes on a stack overflow. The limit for documents is lower."""


_MERGE: Final = "tag:yaml.org,2002:merge"


class _Loader(yaml.CSafeLoader):
    """Limits merge keys (`<<`), because nested merge keys multiply members."""

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        for key, value in node.value:
            if key.tag == _MERGE and len(value.value) > _MAX_MERGED:
                raise yaml.constructor.ConstructorError(
                    None, None, f"a merge key (<<) of more than {_MAX_MERGED} items", key.start_mark
                )
        super().flatten_mapping(node)
        if len(node.value) > MAX_VALUES:
            raise yaml.constructor.ConstructorError(
                None, None, f"an object with more than {MAX_VALUES} members", node.start_mark
            )

    def construct_document(self, node: yaml.Node) -> Any:
        """Refuse repeated names, because PyYAML and kubectl silently take the last one."""
        _check_names(node)
        return super().construct_document(node)


def yaml_documents(source: IO[str]) -> Iterator[Any]:
    """All documents of a file.

    Raises:
        ClickException: It is not YAML, or exceeds the limits.
    """
    yield from documents_of(text_of(source, _MAX_CHARACTERS), source.name)


def objects_in(source: IO[str]) -> Iterator[Any]:
    """All objects of a file: its documents, and the items of a List, as `kubectl get -o yaml` prints it.

    Raises:
        ClickException: It is not YAML, or exceeds the limits.
    """
    for document in yaml_documents(source):
        items = document.get("items") if isinstance(document, dict) else None
        if isinstance(items, list):
            yield from items
        else:
            yield document


def text_of(source: IO[str], most: int) -> str:
    """The text of a file.

    Raises:
        ClickException: It is not UTF-8 text, or is too long.
    """
    try:
        text = source.read(most + 1)
    except UnicodeDecodeError as error:
        raise click.ClickException(f"{source.name} is not UTF-8 text, so it is not YAML: {error}") from None
    if len(text) > most:
        raise click.ClickException(f"{source.name} has more than {most} characters. Split the file.")
    return text


def documents_of(text: str, name: str) -> Iterator[Any]:
    """All documents of a text.

    Raises:
        ClickException: It is not YAML, or is nested too deeply.
    """
    try:
        _check_depth(text)
        yield from yaml.load_all(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        raise click.ClickException(f"{name} is not YAML: {_explained(error, text)}") from None
    except (yaml.YAMLError, ValueError) as error:  # ValueError: numbers and dates out of range, invalid UTF-8
        raise click.ClickException(f"{name} is not YAML: {error}") from None


def _explained(error: yaml.MarkedYAMLError, text: str) -> str:
    """Where and what a syntax error is, on one line."""
    mark = error.problem_mark or error.context_mark
    if mark is None:
        return str(error)
    line = next(islice(text.splitlines(), mark.line, None), "")
    if "\t" in line[: len(line) - len(line.lstrip())]:
        return f"line {mark.line + 1} is indented with a tab. Indent it with spaces."
    return f"line {mark.line + 1}, column {mark.column + 1}: {', '.join(filter(None, (error.context, error.problem)))}."


def _check_names(document: yaml.Node) -> None:
    """Raise an error for a name that an object has twice. Aliases are followed once."""
    seen, pending = set(), [document]
    while pending:
        node = pending.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            pending += node.value
        elif isinstance(node, yaml.MappingNode):
            pending += [value for _, value in node.value]
            _check_object(node)


def _check_object(node: yaml.MappingNode) -> None:
    first: dict[tuple[str, str], yaml.Mark] = {}
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode) or key.tag == _MERGE:
            continue
        before = first.setdefault((key.tag, key.value), key.start_mark)
        if before is not key.start_mark:
            raise yaml.constructor.ConstructorError(
                None, None, f"{cut(key.value, 60)} is already on line {before.line + 1}. Keep one", key.start_mark
            )


def _check_depth(text: str) -> None:
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > _MAX_DEPTH:
                raise yaml.YAMLError(f"it is nested deeper than {_MAX_DEPTH} levels. Use fewer.")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
