"""Interface of hubs: the list of files with sizes and hashes, and the files.

Tests: tests/models/hubs/test_hostile_hub.py, tests/models/test_fetch.py
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pdinference.api.plain_text import plain
from pdinference.memory import Headers, StoredFiles
from pdinference.models.errors import ModelError
from pdinference.models.files.json_files import MOST_FILES
from pdinference.models.files.paths import OWN_NAMES, first_folder, is_within
from pdinference.models.files.weight_files import BIN, SAFETENSORS, weight_files

_NEVER_LOADED = (".pth", ".ckpt", ".h5", ".msgpack", ".onnx", ".onnx_data", ".ot", ".tflite")
_LEFT_OUT = {SAFETENSORS: (*_NEVER_LOADED, ".bin", ".pt", ".gguf"), BIN: _NEVER_LOADED}
"""Suffixes of the same weights in other formats, by the format that vLLM loads."""


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository on a hub, at a revision.

    Attributes:
        revision: Branch, tag or commit in the spec.
    """

    name: str
    revision: str

    def __str__(self) -> str:
        return f"{self.name} revision {self.revision}"


_SHA256, _BLOB = re.compile("[0-9a-f]{64}"), re.compile("[0-9a-f]{40}|[0-9a-f]{64}")
_COMMIT = re.compile("[A-Za-z0-9_][A-Za-z0-9_./-]{0,254}")
_LARGEST = 1 << 46
"""Maximum size of a repository in bytes, 64 TiB."""


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file of a repository.

    Attributes:
        path: Path within the repository.
        sha256: Digest of the content, if the hub reports it.
        blob: git's hash of the file (of size and content), if the hub reports it.
        etag: Opaque tag of the content, for stores that report no digest. Another content has another tag.
    """

    path: str
    size: int
    sha256: str | None = None
    blob: str | None = None
    etag: str | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """The files of a repository.

    Attributes:
        commit: Commit of the revision at the time of the request, or the revision if the hub does not report it. For a
            bucket, a digest of the list.
    """

    commit: str
    files: tuple[RemoteFile, ...]

    def __post_init__(self) -> None:
        """Validate the untrusted listing.

        Raises:
            ModelError: The listing is not valid.
        """
        if len(self.files) > MOST_FILES:
            raise too_many_files()
        if not _COMMIT.fullmatch(self.commit) or ".." in self.commit:
            raise ModelError("Damaged", f"The hub returned an invalid commit: {plain(self.commit, 100)!r}.")
        for file in self.files:
            _require_fit(file)
        if sum(file.size for file in self.files) > _LARGEST:
            raise ModelError("Damaged", f"The hub lists more than {_LARGEST:,} bytes of files.")

    def wanted(self) -> tuple[RemoteFile, ...]:
        """The files that vLLM may load, without the same weights in other formats.

        Names that the operator and the hubs' clients use for their own files are left out, too.
        """
        files = tuple(file for file in self.files if first_folder(file.path) not in OWN_NAMES)
        weights = weight_files({file.path for file in files})
        left_out = _LEFT_OUT.get(weights.suffix, ()) if weights.names else ()
        return tuple(file for file in files if not file.path.endswith(left_out))


def too_many_files() -> ModelError:
    """The error for a list with too many files."""
    return ModelError("Damaged", f"The hub lists more than {MOST_FILES:,} files.")


def _require_fit(file: RemoteFile) -> None:
    if not is_within(file.path):
        raise ModelError("Damaged", f"The hub lists a file with an invalid path: {plain(file.path, 200)!r}.")
    if not 0 <= file.size <= _LARGEST:
        raise ModelError("Damaged", f"The hub lists {plain(file.path, 200)} with {file.size:,} bytes.")
    for digest, pattern in ((file.sha256, _SHA256), (file.blob, _BLOB)):
        if digest is not None and not pattern.fullmatch(digest):
            raise ModelError("Damaged", f"The hub lists {plain(file.path, 200)} with an invalid hash.")


class Hub(Protocol):
    """One repository on a hub.

    All methods raise ModelError.
    """

    def listing(self) -> Listing:
        """Request the list of files."""

    def download(self, file: RemoteFile, commit: str, folder: Path) -> None:
        """Download one file to a folder, under its path within the repository."""

    def weights(self, listing: Listing) -> Headers | StoredFiles | None:
        """Facts about the weights without a download: headers of safetensors files if available, or else sizes.

        None if the repository has no weights that vLLM loads, or if they are damaged or too many.
        """
