"""Which look a document gets."""

from collections.abc import Mapping
from typing import Any

from pdinference.api import names
from pdinference.checks.examine import Examination, examine
from pdinference.checks.offline import BatchExamination, examine_batch
from pdinference.manifests import RenderSettings


def examine_any(
    document: Mapping[str, Any],
    settings: RenderSettings,
    *,
    old: Mapping[str, Any] | None = None,
    status_model: Mapping[str, Any] | None = None,
) -> Examination | BatchExamination:
    """Look at a PDInference or a PDBatch.

    Args:
        document: The resource as JSON data.
        settings: What the operator was installed with.
        old: What an update replaces.
        status_model: What is known of the model where nothing is replaced.
    """
    if document.get("kind") == names.BATCH_KIND:
        return examine_batch(document, old)
    status = (old or {}).get("status") or {}
    return examine(document, settings, status_model if old is None else status.get("model"))
