"""Responses of the Hugging Face Hub, read with limits: the list of files, and the first bytes of files.

Tests: tests/models/hubs/test_hostile_hub.py, tests/models/files/test_weight_files.py, tests/models/test_fetch.py
"""

import time

import msgspec
from httpx2 import ReadTimeout
from huggingface_hub.utils._headers import build_hf_headers
from huggingface_hub.utils._http import get_session, hf_raise_for_status

from pdinference.api.bounded_json import BoundedJsonError, JsonLimits, measure
from pdinference.models.errors import ModelError
from pdinference.models.files.json_files import MOST_FILES
from pdinference.models.hubs.hub import Listing, RemoteFile, too_many_files

INFO = JsonLimits(size=24 << 20, values=2_000_000, members=1_000_000)
"""Limits of a list of files. A list of 100,000 files has 20 MB."""
_TIMEOUT_S, _DEADLINE_S = 30.0, 300.0


class _Lfs(msgspec.Struct):
    sha256: str | None = None


class _File(msgspec.Struct, rename="camel"):
    rfilename: str
    size: int | None = None
    blob_id: str | None = None
    lfs: _Lfs | None = None


class _Info(msgspec.Struct):
    sha: str | None = None
    siblings: list[_File] | None = None


_INFO = msgspec.json.Decoder(_Info)


def read_start(url: str, size: int) -> bytes:
    """The first bytes of the content of a URL.

    Raises:
        HfHubHTTPError: The hub returned an error.
        HTTPError: The hub cannot be reached, or the request timed out.
    """
    headers = {**build_hf_headers(), "Accept-Encoding": "identity", "Range": f"bytes=0-{size - 1}"}
    content, deadline = bytearray(), time.monotonic() + _DEADLINE_S
    with get_session().stream("GET", url, headers=headers, timeout=_TIMEOUT_S) as response:
        hf_raise_for_status(response)
        for piece in response.iter_raw():
            content += piece[: size - len(content)]
            if len(content) >= size:
                break
            if time.monotonic() > deadline:
                raise ReadTimeout(f"no end after {_DEADLINE_S:g} s")
    return bytes(content)


def listing_of(content: bytes, revision: str) -> Listing:
    """Parse the hub's list of files.

    Raises:
        ModelError: It is invalid.
    """
    try:
        measure(content, INFO)
        info = _INFO.decode(content)
    except (BoundedJsonError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ModelError(
            "HubFailed", f"The hub returned an invalid list of files: {error}. The download is retried."
        ) from None
    siblings = info.siblings or []
    if len(siblings) > MOST_FILES:
        raise too_many_files()
    files = tuple(
        RemoteFile(file.rfilename, file.size or 0, sha256=file.lfs.sha256)
        if file.lfs
        else RemoteFile(file.rfilename, file.size or 0, blob=file.blob_id)
        for file in siblings
    )
    return Listing(info.sha or revision, files)
