"""Finds all launches of vLLM in a text: a shell script or command, a compose file, or Kubernetes manifests.

Tests: tests/conversion/test_containers.py, tests/conversion/test_resource.py, tests/conversion/test_kinds.py
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pdinference.api.bounds import broken_bound
from pdinference.conversion.compose import compose_starts, is_compose
from pdinference.conversion.config_maps import config_maps
from pdinference.conversion.helm_values import is_values, values_starts
from pdinference.conversion.kubernetes import is_manifest, manifest_starts, objects_of
from pdinference.conversion.launch import ConversionError, Launch
from pdinference.conversion.llm_inference_service import KIND, service_starts
from pdinference.conversion.programs import Context, starts_in, starts_of

_YAML = re.compile(r"---|\{\s*[\"'{}]|\{$|%YAML|[\"']?[A-Za-z][\w-]*[\"']?\s*:(\s|$)")
"""Start of the first line of a manifest or compose file. No command starts like this."""
_NO_START = (
    "Nothing here starts vLLM{others}. Give a line with `vllm serve ...` or `python -m "
    "vllm.entrypoints.openai.api_server ...`, a `docker run` of it, a compose file, a manifest of any kind with a "
    "container of it, or values of a Helm chart with one."
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
    context = Context()
    return _some(starts_in(text, context), context)


def starts_in_words(words: Sequence[str]) -> list[Launch]:
    """All launches of vLLM in one command that a shell has already split.

    Raises:
        ConversionError: The command does not start vLLM.
    """
    context = Context()
    return _some(starts_of(words, context=context), context)


def starts_in_documents(documents: Iterable[Any]) -> list[Launch]:
    """All launches of vLLM in YAML documents.

    Raises:
        ConversionError: The documents are too large, or do not start vLLM.
    """
    known = [document for document in documents if isinstance(document, Mapping)]
    for document in known:
        if (broken := broken_bound(document)) is not None:
            raise ConversionError(f"{broken[0] or 'The document'}: {broken[1]}")
    context = Context()
    composed = [start for document in known if is_compose(document) for start in compose_starts(document, context)]
    objects = objects_of(document for document in known if is_manifest(document))
    maps = config_maps(objects)
    services = [each for each in objects if each.get("kind") == KIND]
    served = [start for each in services for start in service_starts(each, maps, context)]
    others = manifest_starts([each for each in objects if each.get("kind") != KIND], context)
    values = [start for document in known if is_values(document) for start in values_starts(document, context)]
    return _some([*composed, *served, *others, *values], context)


def _some(found: list[Launch], context: Context) -> list[Launch]:
    if not found:
        named = f", but {' and '.join(context.others)}" if context.others else ""
        raise ConversionError(_NO_START.format(others=named))
    leading = [launch for launch in found if "--headless" not in launch.arguments]
    return leading or found
