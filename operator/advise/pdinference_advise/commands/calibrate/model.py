"""The model whose steps are measured: its resource, its config.json, and the settings of vLLM that follow.

Tests: tests/advise/commands/calibrate/test_calibrate.py
"""

from pathlib import Path
from typing import Any, Final

import click

from pdinference.api.names import Role
from pdinference.api.v1alpha1 import PDInference
from pdinference.api.validation import validated
from pdinference.cli.plan.model_files import read_model
from pdinference.memory import Inputs, UnusableConfigError, UnusableSpecError, model_facts, plan_role
from pdinference.memory.settings import Settings
from pdinference.models.errors import ModelFilesError

Json = dict[str, Any]

ROLE: Final = Role.DECODE
"""The role whose pod is measured: in the mode Aggregated it does prefill too."""


def aggregated(document: Json) -> Json:
    """The same resource with prefill and decode in one engine, as it is measured."""
    spec = document.get("spec")
    return {**document, "spec": {**spec, "mode": "Aggregated"}} if isinstance(spec, dict) else document


def with_config(
    document: Json, folder: Path | None, file: Path | None, known: Json | None = None
) -> tuple[PDInference, Json]:
    """A resource, and the config.json of its model.

    Args:
        document: The resource as JSON.
        folder: Folder with config.json; takes precedence over the resource and `known`, as does `file`.
        file: The config.json.
        known: The config.json that was measured.

    Raises:
        InvalidResourceError: The resource is not valid.
        ClickException: There is no config.json, or it is damaged.
    """
    resource = validated(document)
    stated = resource.spec.model.architecture
    if not (folder or file) and (config := known or (dict(stated.config) if stated and stated.config else None)):
        return resource, config
    try:
        return resource, read_model(resource.spec.model.source, folder, file)[0]
    except ModelFilesError as error:
        raise click.ClickException(f"{resource.metadata.name}: {error}") from None


def settings_of(resource: PDInference, config: Json) -> Settings:
    """The settings of vLLM in the pod that is measured.

    Raises:
        ClickException: vLLM cannot serve the model with this resource.
    """
    try:
        return plan_role(Inputs(resource.spec, model_facts(config)), ROLE).settings
    except (UnusableConfigError, UnusableSpecError) as error:
        raise click.ClickException(f"{resource.metadata.name}: {error}") from None
