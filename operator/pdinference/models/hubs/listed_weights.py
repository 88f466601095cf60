"""Facts about the weights of a listing, from the first bytes of its files, or from their sizes.

Tests: tests/models/hubs/test_hostile_hub.py, tests/models/files/test_weight_files.py, tests/models/test_fetch.py
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from pdinference.api.bounded_json import BoundedJsonError
from pdinference.memory import Headers, StoredFiles, TensorHeader
from pdinference.models.files.json_files import HEADER, INDEX
from pdinference.models.files.local_files import MOST_SHARDS, MOST_TENSORS, planned
from pdinference.models.files.safetensors import LENGTH, Allowance, Header, header_length, parsed_header
from pdinference.models.files.stored_files import sizes_in_listing
from pdinference.models.files.weight_files import SAFETENSORS, WeightFiles
from pdinference.models.hubs.hub import Listing
from pdinference.models.hubs.listed_files import files_in_listing

_MOST_HEADER = HEADER.size
_FIRST = 100_000
"""Size of the first request in bytes. Most headers are not longer."""
_AT_ONCE = 8

Start = Callable[[str, int], bytes]
"""Returns up to this number of bytes from the start of a file."""


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
