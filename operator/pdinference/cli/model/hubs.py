"""The hubs of models by their names, as in `spec.model.source`.

Tests: tests/models/test_fetch.py, tests/cli/test_plan.py
"""

import os

import click

from pdinference.models.hubs.hub import Hub, Repository


def hub_of(hub: str, repository: str, revision: str) -> Hub:
    """A repository on the hub with this name. Only the client of this hub is imported."""
    if not repository or not revision:
        raise click.UsageError("A hub needs --repository and --revision.")
    where = Repository(repository, revision)
    if hub == "modelScope":
        from pdinference.models.hubs.model_scope import ModelScopeHub  # noqa: PLC0415

        return ModelScopeHub(where)
    # The client reads these variables when it is imported: no telemetry, and no progress bars in logs.
    os.environ.update(HF_HUB_DISABLE_TELEMETRY="1", HF_HUB_DISABLE_PROGRESS_BARS="1")
    from pdinference.models.hubs.hugging_face import HuggingFaceHub  # noqa: PLC0415

    return HuggingFaceHub(where)
