"""A P that may run on any product is valid, and worth a warning."""

from collections.abc import Iterator

from pdinference.api.v1alpha1 import Spec
from pdinference.api.validation import Problem
from pdinference.planning.pinning import not_pinned


def pinning_warnings(spec: Spec) -> Iterator[Problem]:
    """That P is not pinned to a product."""
    if (problem := not_pinned(spec)) is not None:
        yield Problem("spec.parameter.accelerator.products", problem)
