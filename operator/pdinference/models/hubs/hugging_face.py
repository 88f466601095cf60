"""Client of the Hugging Face hub or a mirror (HF_ENDPOINT). HF_TOKEN has the token, HTTPS_PROXY a proxy.

Tests: tests/models/test_fetch.py, tests/models/hubs/test_hostile_hub.py, tests/models/hubs/test_token.py
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from httpx2 import HTTPError
from huggingface_hub import constants, get_token, hf_hub_download, hf_hub_url
from huggingface_hub.errors import (
    FileMetadataError,
    GatedRepoError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from pdinference.api.bounded_json import BoundedJsonError
from pdinference.memory import Headers, StoredFiles
from pdinference.models.errors import ModelError
from pdinference.models.hubs.hub import Listing, RemoteFile, Repository
from pdinference.models.hubs.listed_weights import weights_of
from pdinference.models.hubs.remote import INFO, listing_of, read_start

_UNAUTHORIZED, _FORBIDDEN = 401, 403


class HuggingFaceHub:
    """One repository on the Hugging Face hub.

    Args:
        repository: The repository.
        endpoint: URL of the hub; None for HF_ENDPOINT or the public hub.
    """

    def __init__(self, repository: Repository, endpoint: str | None = None) -> None:
        self._repository = repository
        self._endpoint = endpoint or constants.ENDPOINT

    def listing(self) -> Listing:
        """Request the list of files."""
        revision = quote(self._repository.revision, safe="")
        with self._explained():
            content = read_start(
                f"{self._endpoint}/api/models/{self._repository.name}/revision/{revision}?blobs=true", INFO.size + 1
            )
        return listing_of(content, self._repository.revision)

    def download(self, file: RemoteFile, commit: str, folder: Path) -> None:
        """Download one file to a folder."""
        with self._explained():
            hf_hub_download(
                self._repository.name, file.path, revision=commit, local_dir=folder, endpoint=self._endpoint
            )

    def weights(self, listing: Listing) -> Headers | StoredFiles | None:
        """Headers of safetensors files, read by range requests, or sizes of other files from the list of files."""
        try:
            with self._explained():
                return weights_of(listing, lambda path, size: self._start(path, listing.commit, size))
        except BoundedJsonError:
            return None

    def _start(self, path: str, commit: str, size: int) -> bytes:
        return read_start(hf_hub_url(self._repository.name, path, revision=commit, endpoint=self._endpoint), size)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        _require_certificates()
        try:
            yield
        except (HfHubHTTPError, LocalEntryNotFoundError, FileMetadataError, HTTPError, ConnectionError) as error:
            raise self._explanation(error) from error

    def _explanation(self, error: Exception) -> ModelError:
        name = self._repository.name
        if isinstance(error, GatedRepoError):
            return ModelError(
                "AccessDenied",
                f"{name} is gated: accept its terms on {self._endpoint}/{name} with the account that the token in "
                "spec.model.source.huggingFace.tokenSecret belongs to.",
            )
        if isinstance(error, RevisionNotFoundError):
            return ModelError(
                "NotFound",
                f"{name} has no revision {self._repository.revision}. Check the branches and tags of the repository.",
            )
        if isinstance(error, RepositoryNotFoundError):
            return ModelError("NotFound", self._absent())
        if isinstance(error, HfHubHTTPError):
            return self._refusal(error.response.status_code)
        return ModelError(
            "HubUnreachable",
            f"Cannot connect to {self._endpoint} ({_first_line(error)}). Check that pods can connect to it, or set "
            "HF_ENDPOINT or HTTPS_PROXY in spec.engine.env. It is tried again.",
        )

    def _refusal(self, status: int) -> ModelError:
        name = self._repository.name
        if status in {_UNAUTHORIZED, _FORBIDDEN}:
            return ModelError(
                "AccessDenied",
                f"{self._endpoint} denied access to {name} (HTTP {status}). Check the token in "
                "spec.model.source.huggingFace.tokenSecret, and what it may read.",
            )
        return ModelError(
            "HubFailed", f"{self._endpoint} returned HTTP {status} for {self._repository}. The download is retried."
        )

    def _absent(self) -> str:
        """The message for HTTP 404. The hub does not distinguish missing repositories from private ones."""
        known = "" if get_token() else "if it is private, set spec.model.source.huggingFace.tokenSecret; "
        return f"{self._endpoint} has no {self._repository.name} that we may read: {known}check the spelling."


def _require_certificates() -> None:
    """Refuse a file of certificates that is not there. The client's error names no file, as if the cache lacked one."""
    if (certificates := os.environ.get("SSL_CERT_FILE")) and not Path(certificates).is_file():
        raise ModelError(
            "HubUnreachable",
            f"SSL_CERT_FILE names {certificates}, and this container has no such file: podTemplate mounts nothing into "
            "it. Put the certificates into the image of downloads (the chart's model.image), or correct "
            "spec.engine.env.",
        )


def _first_line(error: Exception) -> str:
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    return (str(cause).splitlines() or [type(cause).__name__])[0][:200]
