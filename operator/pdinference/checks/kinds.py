"""Selects the examination for the kind of a document."""

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
) -> Examination | BatchExamination:
    """Examine a PDInference or a PDBatch.

    Args:
        document: The resource as JSON data.
        settings: Settings of the operator.
        old: The object that an update replaces.
        known: Returns facts about the model if `old` is None.
    """
    if document.get("kind") == names.BATCH_KIND:
        return examine_batch(document, settings, old)
    if old is not None:
        status = old.get("status")
        model = status.get("model") if isinstance(status, Mapping) else None
        return examine(document, settings, lambda _: model)
    return examine(document, settings, known)
