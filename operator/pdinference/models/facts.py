"""Collects facts about a model, in the form of `status.model.facts`."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic.alias_generators import to_camel

from pdinference.models.errors import ModelError, ModelFilesError
from pdinference.models.files.json_files import CONFIG
from pdinference.models.files.local_files import read_config
from pdinference.models.files.stored_files import read_weights
from pdinference.models.hubs.hub import Hub, Listing, RemoteFile
from pdinference.models.hubs.small_files import downloaded
from pdinference.models.limits import MOST_BYTES
from pdinference.planning.memory import (
    Headers,
    StoredFiles,
    UnusableConfigError,
    compact_config,
    known_weights,
    model_facts,
)

_LARGEST = 64 << 10
"""Bytes of a config that an annotation and a status may hold; of larger ones nothing is known."""
_CONFUSED = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What a config with anything in any place may lead to."""


def facts_of_folder(folder: Path) -> dict[str, Any]:
    """What the files in a folder tell.

    Raises:
        ModelError: They are not there, or damaged.
    """
    try:
        return _facts(read_config(folder / "config.json"), read_weights(folder))
    except ModelFilesError as error:
        raise ModelError("NotAModel", str(error)) from error


def facts_of_hub(hub: Hub) -> tuple[Listing, dict[str, Any]]:
    """What a hub reports without the weights: a few kilobytes, and the headers of each file, or its size.

    Raises:
        ModelError: The hub refuses, or there is no config.json.
    """
    listing = hub.listing()
    config = next((file for file in listing.files if file.path == "config.json"), None)
    if config is None:
        raise ModelError("NotAModel", "The repository has no config.json, which vLLM needs. Check the repository.")
    try:
        content = downloaded_config(hub, config, listing.commit)
    except ModelFilesError as error:
        raise ModelError("NotAModel", str(error)) from error
    return listing, _facts(content, hub.weights(listing))


def downloaded_config(hub: Hub, file: RemoteFile, commit: str) -> dict[str, Any]:
    """A small JSON file of a repository.

    Raises:
        ModelError: The hub refuses, or sends something too large.
        ModelFilesError: It is no JSON object.
    """
    with downloaded(hub, file, commit, CONFIG) as config:
        return read_config(config)


def _facts(config: dict[str, Any], weights: Headers | StoredFiles | None) -> dict[str, Any]:
    try:
        facts: dict[str, Any] = {"config": compact_config(config)}
    except _CONFUSED:
        return {}
    if len(json.dumps(facts)) > _LARGEST:
        return {}
    try:
        totals = asdict(known_weights(weights, model_facts(config))) if weights else {}
    except (UnusableConfigError, *_CONFUSED):  # the planner says what is missing
        return facts
    if totals and max(number for number in totals.values() if isinstance(number, int)) <= MOST_BYTES:
        facts["checkpoint"] = {to_camel(name): value for name, value in totals.items()}
    return facts
