"""Collects facts about a model, in the form of `status.model.facts`.

Tests: tests/models/test_fetch.py, tests/models/files/test_hostile_files.py, tests/models/hubs/test_hostile_hub.py
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic.alias_generators import to_camel

from pdinference.memory import (
    Headers,
    StoredFiles,
    UnusableConfigError,
    compact_config,
    known_weights,
    model_facts,
)
from pdinference.models.errors import ModelError, ModelFilesError
from pdinference.models.files.json_files import CONFIG
from pdinference.models.files.local_files import read_config
from pdinference.models.files.stored_files import read_weights
from pdinference.models.hubs.hub import Hub, Listing, RemoteFile
from pdinference.models.hubs.small_files import downloaded
from pdinference.models.limits import MOST_BYTES

_LARGEST = 64 << 10
"""Maximum size of a config in an annotation and in the status. Larger ones are left out."""
_CONFUSED = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Errors of reading a config with unexpected values."""


def facts_of_folder(folder: Path) -> dict[str, Any]:
    """Facts from the files in a folder.

    Raises:
        ModelError: Files are missing or damaged.
    """
    try:
        return _facts(read_config(folder / "config.json"), read_weights(folder))
    except ModelFilesError as error:
        raise ModelError("NotAModel", str(error)) from error


def facts_of_hub(hub: Hub) -> tuple[Listing, dict[str, Any]]:
    """Facts from a hub without a download of weights: the config, and the header or size of each weight file.

    Raises:
        ModelError: The hub returned an error, or the repository has no config.json.
    """
    listing = hub.listing()
    content = config_of_hub(hub, listing)
    return listing, _facts(content, hub.weights(listing))


def config_of_hub(hub: Hub, listing: Listing) -> dict[str, Any]:
    """config.json of a repository.

    Raises:
        ModelError: The hub returned an error, or the repository has none that can be read.
    """
    config = next((file for file in listing.files if file.path == "config.json"), None)
    if config is None:
        raise ModelError("NotAModel", "The repository has no config.json, which vLLM needs. Check the repository.")
    try:
        return downloaded_config(hub, config, listing.commit)
    except ModelFilesError as error:
        raise ModelError("NotAModel", str(error)) from error


def downloaded_config(hub: Hub, file: RemoteFile, commit: str) -> dict[str, Any]:
    """A small JSON file of a repository.

    Raises:
        ModelError: The hub returned an error, or the file is too large.
        ModelFilesError: It is not a JSON object.
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
    except (UnusableConfigError, *_CONFUSED):  # the planner reports missing fields
        return facts
    if totals and max(number for number in totals.values() if isinstance(number, int)) <= MOST_BYTES:
        facts["checkpoint"] = {to_camel(name): value for name, value in totals.items()}
    return facts
