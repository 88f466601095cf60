"""Finds all launches of vLLM in a text: a shell script or command, a compose file, or Kubernetes manifests."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from pdinference.api.bounds import broken_bound
from pdinference.conversion.compose import compose_starts, is_compose
from pdinference.conversion.kubernetes import is_manifest, manifest_starts
from pdinference.conversion.launch import ConversionError, Launch
from pdinference.conversion.programs import starts_in, starts_of

_YAML = re.compile(r"---|\{|%YAML|[\"']?[A-Za-z][\w-]*[\"']?\s*:(\s|$)")
"""Start of the first line of a manifest or compose file. No command starts like this."""
_NO_START = (
    "Nothing here starts vLLM. Give a line with `vllm serve ...` or `python -m vllm.entrypoints.openai.api_server "
    "...`, a `docker run` of it, or a manifest or compose file with one."
)


def is_yaml(text: str) -> bool:
    """Whether a text is a manifest or compose file rather than a shell script."""
    lines = (line.strip() for line in text.splitlines())
    first = next((line for line in lines if line and not line.startswith("#")), "")
    return _YAML.match(first) is not None


def starts_in_script(text: str) -> list[Launch]:
    """All launches of vLLM in a shell script.

    Raises:
        ConversionError: The script cannot be read, or does not start vLLM.
    """
    return _some(starts_in(text))


def starts_in_words(words: Sequence[str]) -> list[Launch]:
    """All launches of vLLM in one command that a shell has already split.

    Raises:
        ConversionError: The command does not start vLLM.
    """
    return _some(starts_of(words))


def starts_in_documents(documents: Iterable[Any]) -> list[Launch]:
    """All launches of vLLM in YAML documents.

    Raises:
        ConversionError: The documents are too large, or do not start vLLM.
    """
    known = [document for document in documents if is_manifest(document) or is_compose(document)]
    for document in known:
        if (broken := broken_bound(document)) is not None:
            raise ConversionError(f"{broken[0] or 'The document'}: {broken[1]}")
    composed = [start for document in known if is_compose(document) for start in compose_starts(document)]
    return _some([*composed, *manifest_starts(document for document in known if is_manifest(document))])


def _some(found: list[Launch]) -> list[Launch]:
    if not found:
        raise ConversionError(_NO_START)
    return found
