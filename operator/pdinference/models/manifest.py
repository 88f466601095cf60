"""The manifest of a complete download: a list of its files, written last.

Tests: tests/models/files/test_hostile_files.py, tests/models/test_fetch.py
"""

import json
import os
import stat
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated

import msgspec

from pdinference.api.bounded_json import BoundedJsonError
from pdinference.api.plain_text import plain
from pdinference.models.errors import ModelError, ModelFilesError
from pdinference.models.files.json_files import MANIFEST_LIMITS, read_measured
from pdinference.models.files.paths import MANIFEST, is_within
from pdinference.models.limits import MOST_BYTES

_VERSION = 1


@dataclass(frozen=True, slots=True)
class KeptFile:
    """A file of a downloaded model.

    Attributes:
        path: Path within the model's folder.
        sha256: Digest of the verified content.
    """

    path: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """A downloaded model.

    Attributes:
        commit: Commit on the hub.
    """

    commit: str
    files: tuple[KeptFile, ...]

    @property
    def size(self) -> int:
        """Size of all files in bytes."""
        return sum(file.size for file in self.files)


class _Kept(msgspec.Struct):
    path: str
    size: Annotated[int, msgspec.Meta(ge=0, le=MOST_BYTES)]
    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class _Content(msgspec.Struct):
    version: int
    commit: Annotated[str, msgspec.Meta(max_length=255)]
    files: list[_Kept]


_CONTENT = msgspec.json.Decoder(_Content)


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of a folder; None if there is none, or if it is not valid."""
    try:
        content = _CONTENT.decode(read_measured(folder / MANIFEST, MANIFEST_LIMITS))
    except (ModelFilesError, BoundedJsonError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    files = tuple(KeptFile(file.path, file.size, file.sha256) for file in content.files)
    if content.version != _VERSION or not all(is_within(file.path) for file in files):
        return None
    return Manifest(plain(content.commit, 255), files)


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Mark a folder as complete, atomically."""
    text = json.dumps({"version": _VERSION, **asdict(manifest)}, indent=1)
    new = folder / f"{MANIFEST}.new"
    new.unlink(missing_ok=True)
    with new.open("x", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    new.replace(folder / MANIFEST)


def faults(folder: Path, manifest: Manifest) -> Iterator[str]:
    """Differences from the manifest, by size only: hashing hundreds of gigabytes would delay each start."""
    for file in manifest.files:
        try:
            found = (folder / file.path).lstat()
        except FileNotFoundError:
            yield f"{file.path} is missing"
            continue
        except OSError as error:
            yield f"{file.path} cannot be read ({error.strerror})"
            continue
        if not stat.S_ISREG(found.st_mode):
            yield f"{file.path} is not a file"
            continue
        size = found.st_size
        if size != file.size:
            yield f"{file.path} has {size:,} bytes instead of {file.size:,}"


def check(folder: Path) -> Manifest:
    """The manifest of a complete download.

    Raises:
        ModelError: The download is missing or no longer complete.
    """
    manifest = read_manifest(folder)
    if manifest is None:
        raise ModelError(
            "NotDownloaded",
            f"{folder} has no complete download. If the volume was replaced or emptied, delete the model Job of this "
            "PDInference; the operator then downloads the model again.",
        )
    if found := list(islice(faults(folder, manifest), 3)):
        raise ModelError(
            "Damaged",
            f"Files in {folder} have changed since the download: {'; '.join(found)}. Delete the model Job of this "
            "PDInference; the operator then repairs the download.",
        )
    return manifest
