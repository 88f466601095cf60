"""The mark of a complete download: a list of its files, written last."""

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from pdinference.models.errors import ModelError

NAME = ".pdinference.json"
_VERSION = 1


@dataclass(frozen=True, slots=True)
class KeptFile:
    """A file of a downloaded model.

    Attributes:
        path: Within the model's folder.
        sha256: Of the content when it was verified.
    """

    path: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """A downloaded model.

    Attributes:
        commit: What the hub gave.
    """

    commit: str
    files: tuple[KeptFile, ...]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of a folder; None where no download was completed, or something else wrote one."""
    try:
        content = json.loads((folder / NAME).read_text(encoding="utf-8"))
        if content["version"] != _VERSION:
            return None
        return Manifest(content["commit"], tuple(KeptFile(**file) for file in content["files"]))
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError):
        return None


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Mark a folder as complete, all at once."""
    text = json.dumps({"version": _VERSION, **asdict(manifest)}, indent=1)
    new = folder / f"{NAME}.new"
    with new.open("w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    new.replace(folder / NAME)


def faults(folder: Path, manifest: Manifest) -> Iterator[str]:
    """What is not as the manifest says, by size alone: reading hundreds of gigabytes would delay each start."""
    for file in manifest.files:
        try:
            size = (folder / file.path).stat().st_size
        except FileNotFoundError:
            yield f"{file.path} is missing"
            continue
        if size != file.size:
            yield f"{file.path} has {size:,} bytes instead of {file.size:,}"


def check(folder: Path) -> Manifest:
    """The manifest of a complete download.

    Raises:
        ModelError: Nothing was downloaded there, or it is no longer whole.
    """
    manifest = read_manifest(folder)
    if manifest is None:
        raise ModelError(
            "NotDownloaded",
            f"{folder} holds no complete download. If the volume was replaced or emptied, delete the model Job of "
            "this PDInference: the operator downloads again.",
        )
    if found := list(faults(folder, manifest)):
        raise ModelError(
            "Damaged",
            f"{folder} is not as it was downloaded: {'; '.join(found[:3])}. Delete the model Job of this PDInference: "
            "the operator mends it.",
        )
    return manifest
