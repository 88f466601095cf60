"""Client of ModelScope or another site (MODELSCOPE_ENDPOINT). HTTPS_PROXY has a proxy."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from modelscope_hub import HubApi
from modelscope_hub.errors import (
    APIError,
    AuthenticationError,
    FileIntegrityError,
    HubError,
    NotExistError,
    PermissionDeniedError,
)
from modelscope_hub.types import FileInfo

from pdinference.api.bounded_json import BoundedJsonError
from pdinference.memory import StoredFiles
from pdinference.models.errors import ModelError, ModelFilesError
from pdinference.models.files.json_files import INDEX, read_measured
from pdinference.models.files.stored_files import sizes_in_listing
from pdinference.models.hubs.hub import Listing, RemoteFile, Repository
from pdinference.models.hubs.listed_files import files_in_listing
from pdinference.models.hubs.small_files import downloaded

_MODEL = "model"


def _remote(file: FileInfo) -> RemoteFile:
    """A file from an untrusted listing.

    Raises:
        TypeError: Its members have wrong types.
    """
    if not isinstance(file.path, str) or type(file.size or 0) is not int or not isinstance(file.sha256 or "", str):
        raise TypeError("no file")
    return RemoteFile(file.path, file.size or 0, sha256=file.sha256 or None)


class ModelScopeHub:
    """One repository on ModelScope.

    Args:
        repository: The repository.
        endpoint: URL of the site; None for MODELSCOPE_ENDPOINT or the public site.
    """

    def __init__(self, repository: Repository, endpoint: str | None = None) -> None:
        self._repository = repository
        self._api = HubApi(endpoint=endpoint)

    def listing(self) -> Listing:
        """Request the list of files. ModelScope does not report the commit."""
        with self._explained():
            found = self._api.list_repo_files(self._repository.name, _MODEL, revision=self._repository.revision)
            files = tuple(_remote(file) for file in found if file.type == "blob")
        return Listing(self._repository.revision, files)

    def download(self, file: RemoteFile, commit: str, folder: Path) -> None:
        """Download one file to a folder. An interrupted download resumes."""
        with self._explained():
            self._api.download_file(
                self._repository.name,
                _MODEL,
                file.path,
                revision=commit,
                local_dir=folder,
                expected_sha256=file.sha256,
                file_size=file.size,
            )

    def weights(self, listing: Listing) -> StoredFiles | None:
        """Sizes from the list of files. ModelScope's client downloads complete files only, so headers are not read."""
        try:
            return sizes_in_listing(listing, files_in_listing(listing, lambda path: self._index(listing, path)))
        except (BoundedJsonError, ModelFilesError):
            return None

    def _index(self, listing: Listing, path: str) -> bytes:
        file = next(file for file in listing.files if file.path == path)
        with downloaded(self, file, listing.commit, INDEX) as index:
            return read_measured(index, INDEX)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except HubError as error:
            raise self._explanation(error) from error
        except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
            raise ModelError(
                "HubFailed",
                f"ModelScope returned an invalid response ({type(error).__name__}). The download is retried.",
            ) from error

    def _explanation(self, error: HubError) -> ModelError:
        match error:
            case NotExistError():
                return ModelError(
                    "NotFound", f"ModelScope has no {self._repository}. Check the spelling and the revision."
                )
            case AuthenticationError() | PermissionDeniedError():
                return ModelError(
                    "AccessDenied", f"ModelScope denied access to {self._repository.name}: it is not public."
                )
            case FileIntegrityError():
                return ModelError(
                    "Damaged", f"The download of a file of {self._repository.name} is damaged. The download is retried."
                )
            case APIError():
                return ModelError(
                    "HubFailed", f"ModelScope returned HTTP {error.status_code}. The download is retried."
                )
        return ModelError(
            "HubUnreachable",
            "Cannot connect to ModelScope. Check that pods can connect to it, or set HTTPS_PROXY in spec.engine.env. "
            "The download is retried.",
        )
