"""Selects the files of a repository that vLLM loads. Only their index is downloaded.

Tests: tests/models/files/test_weight_files.py, tests/models/hubs/test_hostile_hub.py
"""

from collections.abc import Callable

from pdinference.api.bounded_json import BoundedJsonError, measure
from pdinference.models.files.json_files import INDEX
from pdinference.models.files.local_files import names_in_index
from pdinference.models.files.weight_files import SAFETENSORS, WeightFiles, weight_files
from pdinference.models.hubs.hub import Listing

ReadIndex = Callable[[str], bytes]
"""Returns the content of an index by its name, cut off at the largest size that is parsed."""


def files_in_listing(listing: Listing, read: ReadIndex) -> WeightFiles:
    """The files that vLLM loads; empty if some are missing.

    Raises:
        BoundedJsonError: The index of safetensors files is damaged.
    """
    there = {file.path for file in listing.files}
    files = weight_files(there)
    if files.index not in there:
        return files
    try:
        content = read(files.index)
        measure(content, INDEX)
        indexed = names_in_index(content)
    except BoundedJsonError:
        if files.suffix == SAFETENSORS:
            raise
        return files  # vLLM does not read it
    if files.suffix == SAFETENSORS:
        return WeightFiles(SAFETENSORS, tuple(name for name in indexed if name in there))
    return WeightFiles(files.suffix) if files.missing(indexed) else files.of_index(indexed)
