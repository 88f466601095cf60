"""Reads untrusted YAML files: errors become messages, and aliases cannot exhaust the memory."""

from collections.abc import Iterator
from typing import IO, Any, Final

import click
import yaml

from pdinference.api.bounds import MAX_VALUES

_MAX_CHARACTERS: Final = 16 * 2**20
_MAX_MERGED: Final = 64
_MAX_DEPTH: Final = 256
"""Maximum depth of YAML. libyaml recurses and crashes on a stack overflow. The limit for documents is lower."""


class _Loader(yaml.CSafeLoader):
    """Limits merge keys (`<<`), because nested merge keys multiply members."""

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        for key, value in node.value:
            if key.tag == "tag:yaml.org,2002:merge" and len(value.value) > _MAX_MERGED:
                raise yaml.constructor.ConstructorError(
                    None, None, f"a merge key (<<) of more than {_MAX_MERGED} items", key.start_mark
                )
        super().flatten_mapping(node)
        if len(node.value) > MAX_VALUES:
            raise yaml.constructor.ConstructorError(
                None, None, f"an object with more than {MAX_VALUES} members", node.start_mark
            )


def yaml_documents(source: IO[str]) -> Iterator[Any]:
    """All documents of a file.

    Raises:
        ClickException: It is not YAML, or exceeds the limits.
    """
    yield from documents_of(text_of(source, _MAX_CHARACTERS), source.name)


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
    except (yaml.YAMLError, ValueError) as error:  # ValueError: numbers and dates out of range, invalid UTF-8
        raise click.ClickException(f"{name} is not YAML: {error}") from None


def _check_depth(text: str) -> None:
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > _MAX_DEPTH:
                raise yaml.YAMLError(f"it is nested deeper than {_MAX_DEPTH} levels. Use fewer.")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
