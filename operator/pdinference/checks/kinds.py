"""Selects the examination for the kind of a document.

Tests: tests/admission/test_webhook.py
"""

from collections.abc import Mapping
from typing import Any

from pdinference.api import names
from pdinference.checks.examine import Examination, Known, examine
from pdinference.checks.offline import BatchExamination, examine_batch
from pdinference.manifests import RenderSettings


def examine_any(
    document: Mapping[str, Any],
    settings: RenderSettings,
    *,
    old: Mapping[str, Any] | None = None,
    known: Known = lambda _: None,
    admitted: bool = False,
) -> Examination | BatchExamination:
    """Examine a PDInference or a PDBatch.

    Args:
        document: The resource as JSON data.
        settings: Settings of the operator.
        old: The object that an update replaces.
        known: Returns facts about the model if `old` is None.
        admitted: Whether the API server sent both, so that unknown fields come from a CRD of another version.
    """
    if document.get("kind") == names.BATCH_KIND:
        return examine_batch(document, settings, old, admitted=admitted)
    if old is not None:
        status = old.get("status")
        model = status.get("model") if isinstance(status, Mapping) else None
        return examine(document, settings, lambda _: model, admitted=admitted)
    return examine(document, settings, known, admitted=admitted)
