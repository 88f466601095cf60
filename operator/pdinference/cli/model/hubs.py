"""The hubs of models, and buckets, by their names, as in `spec.model.source`.

Tests: tests/models/test_fetch.py, tests/cli/test_plan.py
"""

import os
from dataclasses import dataclass

import click

from pdinference.api.v1alpha1.source import CREDENTIALS
from pdinference.cli.extras import HUBS, of_extra
from pdinference.engine.model_cache import BUCKET
from pdinference.models.hubs.hub import Hub, Repository


@dataclass(frozen=True)
class Where:
    """A model that is not on this machine.

    Attributes:
        hub: Hub of the model, or `bucket`.
        repository: Repository on the hub, or URI of a folder in a bucket.
        revision: Branch, tag or commit; empty for a bucket.
        endpoint: URL of the bucket's server.
        region: Region of the bucket.
    """

    hub: str
    repository: str
    revision: str = ""
    endpoint: str | None = None
    region: str = ""


def source_of(where: Where) -> Hub:
    """The hub or the bucket. Only its client is imported."""
    if where.hub != BUCKET:
        return hub_of(where.hub, where.repository, where.revision)
    if not where.repository:
        raise click.UsageError("A bucket needs --repository s3://BUCKET/FOLDER.")
    with of_extra(HUBS):
        from pdinference.models.hubs.bucket import BucketHub, Place  # noqa: PLC0415

    key, secret = (os.environ.get(name, "") for name in CREDENTIALS)
    return BucketHub(Place(where.repository, where.endpoint, where.region, (key, secret) if key and secret else None))


def hub_of(hub: str, repository: str, revision: str) -> Hub:
    """A repository on the hub with this name. Only the client of this hub is imported."""
    if not repository or not revision:
        raise click.UsageError("A hub needs --repository and --revision.")
    where = Repository(repository, revision)
    if hub == "modelScope":
        with of_extra(HUBS):
            from pdinference.models.hubs.model_scope import ModelScopeHub  # noqa: PLC0415

        return ModelScopeHub(where)
    # The client reads these variables when it is imported: no telemetry, and no progress bars in logs.
    os.environ.update(HF_HUB_DISABLE_TELEMETRY="1", HF_HUB_DISABLE_PROGRESS_BARS="1")
    with of_extra(HUBS):
        from pdinference.models.hubs.hugging_face import HuggingFaceHub  # noqa: PLC0415

    return HuggingFaceHub(where)
