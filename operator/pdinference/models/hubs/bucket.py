"""Client of a folder in a bucket of S3 or of a server with its API. HTTPS_PROXY has a proxy.

Tests: tests/integration/test_bucket.py, tests/models/hubs/test_bucket_keys.py
"""

import hashlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

import obstore
from obstore.exceptions import (
    BaseError,
    InvalidPathError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import S3Store

from pdinference.api.bounded_json import BoundedJsonError
from pdinference.api.plain_text import plain
from pdinference.api.v1alpha1.source import bucket_and_folder, is_in_host
from pdinference.memory import Headers, StoredFiles
from pdinference.models.errors import ModelError
from pdinference.models.files.etags import note_etag, unfinished
from pdinference.models.files.json_files import MOST_FILES
from pdinference.models.hubs.hub import Listing, RemoteFile, too_many_files
from pdinference.models.hubs.listed_weights import weights_of

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import ClientConfig, S3Config

_CLIENT: "Final[ClientConfig]" = {
    "allow_http": True,  # if the resource says so
    "connect_timeout": "10s",
    "read_timeout": "60s",
    # Of a whole request. A file of many gigabytes takes as long as it takes, while something arrives.
    "timeout": "7d",
}
_PIECE = 8 << 20


@dataclass(frozen=True, slots=True)
class Place:
    """A folder in a bucket.

    Attributes:
        uri: The folder: `s3://bucket/folder`.
        endpoint: URL of the server; None for AWS.
        key: Id and secret of an access key; None for requests without a signature.
    """

    uri: str
    endpoint: str | None
    region: str
    key: tuple[str, str] | None

    def __str__(self) -> str:
        return f"{self.uri} at {self.endpoint}" if self.endpoint else self.uri


class BucketHub:
    """One folder in a bucket. Objects have no digest that can be trusted; tags tell whether they have changed."""

    def __init__(self, place: Place) -> None:
        self._place = place
        bucket, folder = bucket_and_folder(place.uri)
        in_host = is_in_host(bucket, place.endpoint)
        config: S3Config = {"region": place.region, "virtual_hosted_style_request": in_host}
        if place.endpoint is not None:
            config["endpoint"] = place.endpoint
        if place.key is None:
            config["skip_signature"] = True
        else:
            config["access_key_id"], config["secret_access_key"] = place.key
        self._store = S3Store(bucket, prefix=folder or None, config=config, client_options=_CLIENT)

    def __str__(self) -> str:
        return str(self._place)

    def listing(self) -> Listing:
        """Request the list of objects."""
        files: list[RemoteFile] = []
        seen = 0
        with self._explained():
            # The library says why this request fails; of a failed list it says only that it has failed.
            obstore.head(self._store, "config.json")
            for objects in obstore.list(self._store):
                # Empty objects mark folders. vLLM needs no empty file.
                files.extend(_remote(found) for found in objects if found["size"])
                seen += len(objects)
                if seen > MOST_FILES:
                    raise too_many_files()
        _require_no_file_be_a_folder({file.path for file in files})
        files.sort(key=lambda file: file.path)
        lines = "".join(f"{file.path}\0{file.size}\0{file.etag}\n" for file in files)
        return Listing(hashlib.sha256(lines.encode()).hexdigest()[:40], tuple(files))

    def download(self, file: RemoteFile, _commit: str, folder: Path) -> None:
        """Download one object to a folder, if it is still the one that was listed."""
        part, target = unfinished(folder, file.path), folder / file.path
        part.unlink(missing_ok=True)
        with self._explained():
            tag = file.etag or ""
            content = obstore.get(self._store, file.path, options={"if_match": tag} if tag.startswith('"') else {})
            with part.open("xb") as stream:
                for piece in content.stream(min_chunk_size=_PIECE):
                    stream.write(piece)
        target.parent.mkdir(parents=True, exist_ok=True)
        note_etag(folder, file.path, "")  # if this process is killed now, the tag is not that of an earlier object
        part.replace(target)
        note_etag(folder, file.path, tag)

    def weights(self, listing: Listing) -> Headers | StoredFiles | None:
        """Headers of safetensors files, read by range requests, or sizes of other files from the list."""
        try:
            with self._explained():
                return weights_of(listing, self._start)
        except BoundedJsonError:
            return None

    def _start(self, path: str, size: int) -> bytes:
        return bytes(obstore.get_range(self._store, path, start=0, end=size))

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (BaseError, FileNotFoundError) as error:
            raise self._explanation(error) from error

    def _explanation(self, error: Exception) -> ModelError:
        match error:
            case FileNotFoundError():
                return ModelError(
                    "NotFound", f"{self} does not exist, or has no config.json. Check the bucket and the folder."
                )
            case PermissionDeniedError() | UnauthenticatedError():
                return ModelError("AccessDenied", f"The server denied access to {self}: {self._missing()}.")
            case PreconditionError():
                return ModelError("Damaged", f"A file of {self} was changed during the download. It is tried again.")
            case InvalidPathError():
                why = plain(_cause(error), 300)
                return ModelError(
                    "NotAModel",
                    f"{self} has an object that can be no file. Rename or delete it. The client says: {why}.",
                )
        return ModelError(
            "HubUnreachable",
            f"Cannot read {self} ({_cause(error)}). Check spec.model.source.bucket.endpoint, and that pods can connect "
            "to it. It is tried again.",
        )

    def _missing(self) -> str:
        if self._place.key is None:
            return "set spec.model.source.bucket.secretName, unless the bucket is public"
        return "check the key in the Secret of spec.model.source.bucket.secretName, and that it may list and read"


def _remote(found: "ObjectMeta") -> RemoteFile:
    """A file. A server without tags says at least when an object was changed."""
    return RemoteFile(found["path"], found["size"], etag=found["e_tag"] or found["last_modified"].isoformat())


def _require_no_file_be_a_folder(paths: Collection[str]) -> None:
    folders = {str(parent) for path in paths for parent in PurePosixPath(path).parents}
    if both := sorted(folders.intersection(paths)):
        raise ModelError("NotAModel", f"{plain(both[0], 200)} is an object and a folder. Rename or delete the object.")


def _cause(error: Exception) -> str:
    """The first line of a message, without the server's document and the library's own data."""
    first = (str(error).splitlines() or [type(error).__name__])[0]
    return first.partition(": <")[0][:300]
