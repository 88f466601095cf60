"""Responses of the Hugging Face Hub, read with limits: the list of files, and the first bytes of files.

Tests: tests/models/hubs/test_hostile_hub.py, tests/models/files/test_weight_files.py, tests/models/test_fetch.py
"""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import msgspec
from httpx2 import ReadTimeout
from huggingface_hub.utils._headers import build_hf_headers
from huggingface_hub.utils._http import get_session, hf_raise_for_status

from pdinference.api.bounded_json import BoundedJsonError, JsonLimits, measure
from pdinference.memory import Headers, StoredFiles, TensorHeader
from pdinference.models.errors import ModelError
from pdinference.models.files.json_files import HEADER, INDEX, MOST_FILES
from pdinference.models.files.local_files import MOST_SHARDS, MOST_TENSORS, planned
from pdinference.models.files.safetensors import LENGTH, Allowance, Header, header_length, parsed_header
from pdinference.models.files.stored_files import sizes_in_listing
from pdinference.models.files.weight_files import SAFETENSORS, WeightFiles
from pdinference.models.hubs.hub import Listing, RemoteFile, too_many_files
from pdinference.models.hubs.listed_files import files_in_listing

INFO = JsonLimits(size=24 << 20, values=2_000_000, members=1_000_000)
"""Limits of a list of files. A list of 100,000 files has 20 MB."""
_MOST_HEADER = HEADER.size
_FIRST = 100_000
"""Size of the first request in bytes. Most headers are not longer."""
_TIMEOUT_S, _DEADLINE_S = 30.0, 300.0
_AT_ONCE = 8

Start = Callable[[str, int], bytes]
"""Returns up to this number of bytes from the start of a file."""


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


def weights_of(listing: Listing, start: Start) -> Headers | StoredFiles | None:
    """Facts about the files that vLLM loads: headers of safetensors files, or sizes of others.

    None if there are none or too many.

    Raises:
        BoundedJsonError: The index of safetensors files or one of their headers is damaged.
    """
    files = files_in_listing(listing, lambda index: start(index, INDEX.size + 1))
    return _headers_of(files, start) if files.suffix == SAFETENSORS else sizes_in_listing(listing, files)


def _headers_of(files: WeightFiles, start: Start) -> Headers | None:
    if len(files.names) > MOST_SHARDS:
        return None
    tensors: dict[str, TensorHeader] = {}
    allowance = Allowance()
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        try:
            for header in pool.map(lambda path: _header(path, start, allowance), files.names):
                if header is None or len(tensors) + len(header.tensors) > MOST_TENSORS:
                    return None
                tensors |= planned(header)
        finally:
            pool.shutdown(cancel_futures=True)
    return tensors or None


def _header(path: str, start: Start, allowance: Allowance) -> Header | None:
    """The header of a file; None if those of the model are too long together."""
    content = start(path, _FIRST)
    length = header_length(content[: LENGTH.size])
    if not 0 < length <= _MOST_HEADER:
        raise BoundedJsonError("is absent or too long")
    if not allowance.take(length):
        return None
    end = LENGTH.size + length
    if end > len(content):
        content = start(path, end)
    if end > len(content):
        raise BoundedJsonError("is cut off")
    return parsed_header(content[LENGTH.size : end])
