"""What every hub offers: a list of files with what tells that they are whole, and the files."""

from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Protocol

from pdinference.models.errors import ModelError
from pdinference.planning.memory import Headers

_OTHER_WEIGHTS = (
    ".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".onnx", ".onnx_data", ".gguf", ".ot", ".tflite",
)  # fmt: skip


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

    def wanted(self) -> tuple[RemoteFile, ...]:
        """What vLLM loads or may ask for: with safetensors files, the same weights in other forms are left out."""
        for file in self.files:
            if PurePosixPath(file.path).is_absolute() or ".." in PurePosixPath(file.path).parts:
                raise ModelError("Damaged", f"The hub lists a file outside of the repository: {file.path!r}.")
        if not any(file.path.endswith(".safetensors") for file in self.files):
            return self.files
        return tuple(file for file in self.files if not file.path.endswith(_OTHER_WEIGHTS))


class Hub(Protocol):
    """One repository on a hub.

    Each method raises ModelError in words for a person.
    """

    def listing(self) -> Listing:
        """Ask what the repository holds."""

    def download(self, file: RemoteFile, commit: str, folder: Path) -> None:
        """Put one file into a folder, under its path within the repository."""

    def headers(self, commit: str) -> Headers | None:
        """The headers of its safetensors files, without the rest; None where that is not possible."""
