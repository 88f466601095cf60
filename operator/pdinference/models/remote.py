"""Answers of the Hugging Face hub: its list of files, and the beginnings of files, read as far as they may be large."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import msgspec
from httpx2 import ReadTimeout
from huggingface_hub.utils import (  # type: ignore[attr-defined] - it exports lazily
    build_hf_headers,
    get_session,
    hf_raise_for_status,
)

from pdinference.api.bounded_json import BoundedJsonError, Limits, measure
from pdinference.models.errors import ModelError
from pdinference.models.hub import Listing, RemoteFile, too_many_files
from pdinference.models.json_files import HEADER, INDEX, MOST_FILES
from pdinference.models.local_files import MOST_SHARDS, MOST_TENSORS, names_in_index, planned
from pdinference.models.safetensors import LENGTH, Header, header_length, parsed_header
from pdinference.planning.memory import Headers, TensorHeader

INFO = Limits(size=24 << 20, values=2_000_000, members=1_000_000)
"""A list of 100,000 files has 20 MB."""
_MOST_HEADER = HEADER.size
_FIRST = 100_000
"""Bytes that are asked for first: most headers are not longer."""
_INDEX = "model.safetensors.index.json"
_TIMEOUT_S, _DEADLINE_S = 30.0, 300.0
_AT_ONCE = 8

Start = Callable[[str, int], bytes]
"""From a path and a number of bytes to as many bytes of its beginning as there are."""


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
    """The first bytes of what is at an address, at most so many.

    Raises:
        HfHubHTTPError: The hub refuses.
        HTTPError: It cannot be reached, or takes too long.
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
    """The list of files in an answer of the hub.

    Raises:
        ModelError: It is none.
    """
    try:
        measure(content, INFO)
        info = _INFO.decode(content)
    except (BoundedJsonError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ModelError(
            "HubFailed", f"The hub gave something else than a list of files: {error}. It is tried again."
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


def headers_of(listing: Listing, start: Start) -> Headers | None:
    """The headers of the files that vLLM loads; None without any, or with too many.

    Raises:
        BoundedJsonError: One of them is none.
    """
    files = _weight_files(listing, start)
    if not files or len(files) > MOST_SHARDS:
        return None
    tensors: dict[str, TensorHeader] = {}
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        try:
            for header in pool.map(lambda path: _header(path, start), files):
                tensors |= planned(header)
                if len(tensors) > MOST_TENSORS:
                    return None
        finally:
            pool.shutdown(cancel_futures=True)
    return tensors or None


def _weight_files(listing: Listing, start: Start) -> list[str]:
    """As `local_files` finds them in a folder."""
    there = {file.path for file in listing.files}
    if _INDEX in there:
        content = start(_INDEX, INDEX.size + 1)
        measure(content, INDEX)
        return [name for name in names_in_index(content) if name in there]
    return sorted(
        path
        for path in there
        if path.endswith(".safetensors") and "/" not in path and not path.startswith("consolidated")
    )


def _header(path: str, start: Start) -> Header:
    content = start(path, _FIRST)
    length = header_length(content[: LENGTH.size])
    if not 0 < length <= _MOST_HEADER:
        raise BoundedJsonError("is absent or too long")
    end = LENGTH.size + length
    if end > len(content):
        content = start(path, end)
    if end > len(content):
        raise BoundedJsonError("is cut off")
    return parsed_header(content[LENGTH.size : end])
