"""What is known of a model, in the form of `status.model.facts`."""

import json
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic.alias_generators import to_camel

from pdinference.models.errors import ModelError, ModelFilesError
from pdinference.models.hub import Hub, Listing
from pdinference.models.local_files import read_config, read_headers
from pdinference.planning.memory import Headers, UnusableConfigError, checkpoint_of, compact_config, model_facts

_LARGEST = 64 << 10
"""Bytes of a config that an annotation and a status may hold; of larger ones nothing is known."""


def facts_of_folder(folder: Path) -> dict[str, Any]:
    """What the files in a folder tell.

    Raises:
        ModelError: They are not there, or damaged.
    """
    try:
        return _facts(read_config(folder / "config.json"), read_headers(folder))
    except ModelFilesError as error:
        raise ModelError("NotAModel", str(error)) from error


def facts_of_hub(hub: Hub) -> tuple[Listing, dict[str, Any]]:
    """What a hub tells, without the weights: a few kilobytes, and the headers of each file.

    Raises:
        ModelError: The hub refuses, or there is no config.json.
    """
    listing = hub.listing()
    config = next((file for file in listing.files if file.path == "config.json"), None)
    if config is None:
        raise ModelError("NotAModel", "The repository holds no config.json, which vLLM needs: is it the right one?")
    with tempfile.TemporaryDirectory() as folder:
        hub.download(config, listing.commit, Path(folder))
        try:
            content = read_config(Path(folder, "config.json"))
        except ModelFilesError as error:
            raise ModelError("NotAModel", str(error)) from error
    return listing, _facts(content, hub.headers(listing.commit))


def _facts(config: dict[str, Any], headers: Headers | None) -> dict[str, Any]:
    facts: dict[str, Any] = {"config": compact_config(config)}
    if len(json.dumps(facts)) > _LARGEST:
        return {}
    try:
        shape = model_facts(config)
    except UnusableConfigError:  # the planner says what is missing
        return facts
    if headers:
        totals = asdict(checkpoint_of(headers, shape))
        facts["checkpoint"] = {to_camel(name): number for name, number in totals.items()}
    return facts
