"""Sizes of weight files whose headers are not available: `*.bin` and `*.pt` files, and files on ModelScope.

Pickles are never loaded, because that can execute arbitrary code. The size is sufficient.

Tests: tests/models/files/test_weight_files.py, tests/models/test_fetch.py
"""

from collections.abc import Iterable
from pathlib import Path

from pdinference.memory import Headers, StoredFiles
from pdinference.models.files.local_files import MOST_SHARDS, files_in_folder, headers_in_folder
from pdinference.models.files.torch_files import refuse_cut_off
from pdinference.models.files.weight_files import SAFETENSORS, WeightFiles
from pdinference.models.hubs.hub import Listing
from pdinference.models.limits import MOST_BYTES


def read_weights(folder: Path) -> Headers | StoredFiles | None:
    """Facts about the files that vLLM loads from a folder: headers of safetensors files, or sizes of others.

    None if there are none or too many.

    Raises:
        ModelFilesError: A file is missing or damaged.
    """
    files = files_in_folder(folder)
    if files.suffix == SAFETENSORS:
        return headers_in_folder(folder, files)
    return _stored(files, (refuse_cut_off(folder / name) for name in files.names[: MOST_SHARDS + 1]))


def sizes_in_listing(listing: Listing, files: WeightFiles) -> StoredFiles | None:
    """Sizes of files of a repository; None if there are none or too many, or if the hub does not report sizes."""
    sizes = {file.path: file.size for file in listing.files}
    return _stored(files, [sizes[name] for name in files.names])


def _stored(files: WeightFiles, sizes: Iterable[int]) -> StoredFiles | None:
    found = list(sizes)
    if not found or len(found) > MOST_SHARDS or min(found) <= 0 or sum(found) > MOST_BYTES:
        return None
    return StoredFiles(files.suffix, len(found), sum(found))
