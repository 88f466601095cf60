"""Options for the facts of a model, and the inputs of a memory plan from them.

Tests: tests/cli/test_plan.py, tests/models/test_fetch.py
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import click

from pdinference.api.quantities import quantity
from pdinference.api.v1alpha1 import PDInference
from pdinference.cli.model.hubs import hub_of
from pdinference.cli.plan.model_files import read_draft, read_model
from pdinference.memory import (
    Inputs,
    UnusableConfigError,
    draft_model,
    known_facts,
    known_weights,
    model_facts,
    stated_memory,
)
from pdinference.models.errors import ModelError, ModelFilesError
from pdinference.models.facts import config_of_hub, facts_of_hub
from pdinference.models.hubs.hub import Hub

_REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}")


class _Size(click.ParamType[int]):
    """A size such as 80GiB, 80Gi or 85899345920."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        size = quantity(str(value).removesuffix("B"))
        if size is None or size <= 0:
            self.fail(f"{value!r} is not a size. Write for example 80GiB.", param, ctx)
        return int(size)


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """Where the facts of a model come from.

    Attributes:
        folder: Folder with its files.
        config: Its config.json.
        online: Whether to ask its hub.
        memory: Bytes of one device.
        draft: config.json of the draft of speculative decoding.
    """

    folder: Path | None
    config: Path | None
    online: bool
    memory: int | None
    draft: Path | None = None

    def inputs(self, resource: PDInference, stored: dict[str, Any] | None = None) -> Inputs:
        """The inputs of the memory plan of a resource.

        Args:
            resource: The resource.
            stored: Facts of the model in the status of a stored resource.

        Raises:
            ClickException: Nothing is known of the model, or its files are damaged.
        """
        try:
            config, checkpoint = known_facts(resource.spec, _asked(resource) if self.online else stored)
            if config is None or self.folder or self.config:
                config, read = read_model(resource.spec.model.source, self.folder, self.config)
                checkpoint = known_weights(read, model_facts(config)) if read else checkpoint
            memory = stated_memory(self.memory) if self.memory else None
            draft = self._draft(resource)
            return Inputs(resource.spec, model_facts(config), checkpoint, memory, draft)
        except (ModelFilesError, UnusableConfigError) as error:
            raise click.ClickException(f"{resource.metadata.name}: {error}") from None

    def _draft(self, resource: PDInference) -> dict[str, Any] | None:
        """config.json of the draft; None without one, or where it is not known."""
        name = next(filter(None, (draft_model(resource.spec, role) for role in resource.spec.engine_roles)), "")
        if not name and self.draft is None:
            return None
        known = read_draft(name, self.draft)
        return _asked_for_draft(resource, name) if known is None and self.online else known


def model_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options. The command gets them as `model`."""

    @click.option(
        "--model-dir",
        "folder",
        type=click.Path(path_type=Path, exists=True, file_okay=False),
        help="Folder with the model's config.json and weights.  [default: spec.model.source.path, if it exists]",
    )
    @click.option(
        "--model-config",
        "config",
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        help="The model's config.json only. Weights are then computed from the architecture.",
    )
    @click.option(
        "--draft-config",
        "draft",
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        help="config.json of the draft model that speculative-config names.",
    )
    @click.option("--online", is_flag=True, help="Read config and size of weights from the model's hub.")
    @click.option("--memory", type=_Size(), help="Memory of one device, instead of that of its product: 80GiB.")
    @wraps(command)
    def with_model(
        *,
        folder: Path | None,
        config: Path | None,
        draft: Path | None,
        online: bool,
        memory: int | None,
        **options: Any,
    ) -> None:
        command(model=ModelOptions(folder, config, online, memory, draft), **options)

    return with_model


def _asked(resource: PDInference) -> dict[str, Any] | None:
    """Facts from the hub in the form of the status; None for models that are not on a hub."""
    source = resource.spec.model.source
    if source.hub is None:
        return None
    with _hub(resource, source.hub.repository, source.hub.revision, "--model-dir and --model-config need") as hub:
        _, facts = facts_of_hub(hub)
    return {"facts": {**facts, "source": source.identity()}}


def _asked_for_draft(resource: PDInference, name: str) -> dict[str, Any] | None:
    """config.json of a draft from the hub of its model; None for models that are not on a hub."""
    if resource.spec.model.source.hub is None or not _REPOSITORY.fullmatch(name):
        return None
    with _hub(resource, name, "main", "--draft-config needs") as hub:
        return config_of_hub(hub, hub.listing())


@contextmanager
def _hub(resource: PDInference, repository: str, revision: str, otherwise: str) -> Iterator[Hub]:
    """A repository on the hub of a resource's model; errors name options that need no hub."""
    where = "huggingFace" if resource.spec.model.source.hugging_face else "modelScope"
    try:
        yield hub_of(where, repository, revision)
    except ModelError as error:
        # The original message is for pods, which retry and use the proxy of the resource.
        here = (
            "This machine cannot reach it. Behind a proxy, set HTTPS_PROXY."
            if error.reason == "HubUnreachable"
            else str(error)
        )
        raise click.ClickException(
            f"{resource.metadata.name}: {repository} on {where}: {here.removesuffix(' It is tried again.')} "
            f"{otherwise} no hub."
        ) from None
