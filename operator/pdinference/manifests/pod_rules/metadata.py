"""Labels and annotations of an overlay.

Tests: tests/manifests/test_pod_rules.py, tests/manifests/test_policy.py
"""

import re
from collections.abc import Iterator
from typing import Any

from pdinference.api import names
from pdinference.api.validation import Problem
from pdinference.manifests.pod_rules.shapes import (
    LABEL_VALUE,
    Allowance,
    Check,
    both,
    listed,
    map_of,
    object_of,
    qualified_name,
    text,
)

_OWN = (f"{names.GROUP}/", "app.kubernetes.io/")
_WORD = re.compile(r"[A-Za-z0-9_-]{1,63}")
_ALLOWED_LABEL = listed("labels", "the label")
_ALLOWED_ANNOTATION = listed("annotations", "the annotation")
_ALLOWED_OF_SERVICE = listed("serviceAnnotations", "the annotation")


def _label(value: Any, path: str, allowance: Allowance) -> Iterator[Problem]:
    """A label key that no other Service, policy or webhook selects by."""
    if value.startswith(_OWN):
        yield Problem(path, f"The operator sets the label {value}, which selectors depend on. Remove it.")
    else:
        yield from _ALLOWED_LABEL(value, path, allowance)


def _annotation(value: Any, path: str, allowance: Allowance) -> Iterator[Problem]:
    """An annotation key without effect on cluster components. Keys with an effect have a domain or dots."""
    if not _WORD.fullmatch(value):
        yield from _ALLOWED_ANNOTATION(value, path, allowance)


def service_annotation(value: str, path: str, allowance: Allowance) -> Iterator[Problem]:
    """An annotation key on the Service that does not claim names or addresses."""
    if not _WORD.fullmatch(value):
        yield from _ALLOWED_OF_SERVICE(value, path, allowance)


METADATA: Check = object_of(
    {
        "labels": map_of(both(qualified_name, _label), LABEL_VALUE, most=32),
        "annotations": map_of(both(qualified_name, _annotation), text(most=16384), most=32),
    }
)
