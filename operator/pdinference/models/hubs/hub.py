"""What every hub offers: a list of files with what tells that they are whole, and the files."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pdinference.api.plain_text import plain
from pdinference.models.errors import ModelError
from pdinference.models.files.json_files import MOST_FILES
from pdinference.models.files.paths import OWN_NAMES, first_folder, is_within
from pdinference.models.files.weight_files import BIN, SAFETENSORS, weight_files
from pdinference.planning.memory import Headers, StoredFiles

_NEVER_LOADED = (".pth", ".ckpt", ".h5", ".msgpack", ".onnx", ".onnx_data", ".ot", ".tflite")
_LEFT_OUT = {SAFETENSORS: (*_NEVER_LOADED, ".bin", ".pt", ".gguf"), BIN: _NEVER_LOADED}
"""By what vLLM loads of a model: the same weights in other forms."""


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository on a hub, at a revision.

    Attributes:
        revision: Branch, tag or commit, as the user wrote it.
    """

    name: str
    revision: str

    def __str__(self) -> str:
        return f"{self.name} revision {self.revision}"


_SHA256, _BLOB = re.compile("[0-9a-f]{64}"), re.compile("[0-9a-f]{40}|[0-9a-f]{64}")
_COMMIT = re.compile("[A-Za-z0-9_][A-Za-z0-9_./-]{0,254}")
_LARGEST = 1 << 46
"""Bytes of a repository, 64 TiB."""


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file of a repository.

    Attributes:
        path: Within the repository.
        sha256: Of the content, where the hub tells it.
        blob: What git calls the content (a hash of size and content), where the hub tells it.
    """

    path: str
    size: int
    sha256: str | None = None
    blob: str | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """The files of a repository.

    Attributes:
        commit: What the revision stood for when the hub was asked; the revision itself where the hub does not tell.
    """

    commit: str
    files: tuple[RemoteFile, ...]

    def __post_init__(self) -> None:
        """Refuse what no hub lists.

        Raises:
            ModelError: It is no list of files.
        """
        if len(self.files) > MOST_FILES:
            raise too_many_files()
        if not _COMMIT.fullmatch(self.commit) or ".." in self.commit:
            raise ModelError("Damaged", f"The hub gives a commit that is none: {plain(self.commit, 100)!r}.")
        for file in self.files:
            _require_fit(file)
        if sum(file.size for file in self.files) > _LARGEST:
            raise ModelError("Damaged", f"The hub lists files of more than {_LARGEST:,} bytes.")

    def wanted(self) -> tuple[RemoteFile, ...]:
        """What vLLM loads or may ask for; the same weights in forms that it does not load are left out.

        Names that we and the hubs' clients use for notes are left out, too: a manifest is ours to write.
        """
        files = tuple(file for file in self.files if first_folder(file.path) not in OWN_NAMES)
        weights = weight_files({file.path for file in files})
        left_out = _LEFT_OUT.get(weights.suffix, ()) if weights.names else ()
        return tuple(file for file in files if not file.path.endswith(left_out))


def too_many_files() -> ModelError:
    """Why a list of files is not read."""
    return ModelError("Damaged", f"The hub lists more than {MOST_FILES:,} files.")


def _require_fit(file: RemoteFile) -> None:
    if not is_within(file.path):
        raise ModelError(
            "Damaged", f"The hub lists a file outside of the repository, or an odd name: {plain(file.path, 200)!r}."
        )
    if not 0 <= file.size <= _LARGEST:
        raise ModelError("Damaged", f"The hub lists {plain(file.path, 200)} with {file.size:,} bytes.")
    for digest, pattern in ((file.sha256, _SHA256), (file.blob, _BLOB)):
        if digest is not None and not pattern.fullmatch(digest):
            raise ModelError("Damaged", f"The hub lists {plain(file.path, 200)} with a hash that is none.")


class Hub(Protocol):
    """One repository on a hub.

    Each method raises ModelError in words for a person.
    """

    def listing(self) -> Listing:
        """Ask what the repository holds."""

    def download(self, file: RemoteFile, commit: str, folder: Path) -> None:
        """Put one file into a folder, under its path within the repository."""

    def weights(self, listing: Listing) -> Headers | StoredFiles | None:
        """What is known of its weights without them: headers of safetensors files where they can be had, else sizes.

        None where it has no weights that vLLM loads, they are damaged, or too many.
        """
