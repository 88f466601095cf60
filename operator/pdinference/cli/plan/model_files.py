"""Reads the files of a model on this machine for `pdinference plan`.

Tests: tests/cli/test_plan.py
"""

from pathlib import Path
from typing import Any

from pdinference.api.v1alpha1.source import ModelSource
from pdinference.memory import Headers, StoredFiles
from pdinference.models.errors import ModelFilesError
from pdinference.models.files.local_files import read_config
from pdinference.models.files.stored_files import read_weights


def read_model(
    source: ModelSource, folder: Path | None, config: Path | None
) -> tuple[dict[str, Any], Headers | StoredFiles | None]:
    """Read the facts about a model that the plan needs.

    Args:
        source: Source of the model. A `path` is used if this machine has the folder.
        folder: Folder of the model, from the command line.
        config: A config.json from the command line, which takes precedence over that of the folder.

    Returns:
        The config, and the headers of all tensors or the sizes of other files; None without weights.

    Raises:
        ModelFilesError: There is no config.json, or a file is damaged.
    """
    if folder is None and config is None and source.path is not None and Path(source.path).is_dir():
        folder = Path(source.path)
    file = config or (folder / "config.json" if folder else None)
    if file is None or not file.is_file():
        raise ModelFilesError(_absent(source, folder))
    return read_config(file), read_weights(folder) if folder else None


def read_draft(model: str, config: Path | None) -> dict[str, Any] | None:
    """config.json of the draft of speculative decoding; None if this machine has none.

    Args:
        model: Folder or repository of the draft, as `speculative-config` names it.
        config: A config.json from the command line.

    Raises:
        ModelFilesError: The file is damaged.
    """
    file = config or Path(model, "config.json")
    return read_config(file) if config or (file.is_absolute() and file.is_file()) else None


def _absent(source: ModelSource, folder: Path | None) -> str:
    if folder is not None:
        return f"{folder} has no config.json."
    what, ask = _place(source)
    job = "" if source.path else " In a cluster, a Job reads it with spec.model.inspect: true."
    return (
        f"The plan needs config.json of {what}, and this machine has none. {ask} --model-dir for its folder, or "
        "--model-config for the file; or put the members of config.json into spec.model.architecture.config."
        f"{job}"
    )


def _place(source: ModelSource) -> tuple[str, str]:
    """Where the model is, and how to get its config.json from there."""
    if hub := source.hub:
        return hub.repository, "Use --online to ask the hub,"
    if source.bucket:
        return source.bucket.uri, "Copy it out of the bucket, and use"
    if claim := source.persistent_volume_claim:
        return f"the model in the claim {claim.claim_name}", "Copy it out of the volume, and use"
    return source.path or "the model", "Copy it out of a pod or its image, and use"
