"""Every start of vLLM in a text: a shell script or line, a compose file, or manifests of Kubernetes."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from pdinference.api.bounds import broken_bound
from pdinference.conversion.compose import compose_starts, is_compose
from pdinference.conversion.kubernetes import is_manifest, manifest_starts
from pdinference.conversion.launch import ConversionError, Launch
from pdinference.conversion.programs import starts_in, starts_of

_YAML = re.compile(r"---|\{|%YAML|[\"']?[A-Za-z][\w-]*[\"']?\s*:(\s|$)")
"""How the first line of a manifest or compose file begins; no command does."""
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
    """Starts of vLLM in a shell script.

    Raises:
        ConversionError: It cannot be read, or holds none.
    """
    return _some(starts_in(text))


def starts_in_words(words: Sequence[str]) -> list[Launch]:
    """Starts of vLLM in one command, whose words a shell has already separated.

    Raises:
        ConversionError: It holds none.
    """
    return _some(starts_of(words))


def starts_in_documents(documents: Iterable[Any]) -> list[Launch]:
    """Starts of vLLM in documents of YAML.

    Raises:
        ConversionError: They are too large, or hold none.
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
