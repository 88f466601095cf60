"""The pages of docs/reference, made from the code. `make generate` writes them; tests/test_reference.py compares."""

from collections.abc import Mapping

from e2e.reference.commands import command_page
from e2e.reference.conditions import condition_page
from e2e.reference.events import event_page
from e2e.reference.fields import batch_page, inference_page, scaler_page
from e2e.reference.metrics import metric_page


def pages() -> Mapping[str, str]:
    """The text of each page, by the name of its file."""
    return {
        "pdinference.md": inference_page(),
        "pdbatch.md": batch_page(),
        "pdscaler.md": scaler_page(),
        "conditions.md": condition_page(),
        "events.md": event_page(),
        "metrics.md": metric_page(),
        "commands.md": command_page(),
    }
