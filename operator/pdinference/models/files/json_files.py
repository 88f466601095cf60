"""Reads JSON files of a model within limits.

Tests: tests/models/files/test_hostile_files.py
"""

from pathlib import Path
from typing import Any

from pdinference.api.bounded_json import BoundedJsonError, JsonLimits, loads, measure
from pdinference.api.plain_text import plain
from pdinference.models.errors import ModelFilesError, reading
from pdinference.regular_files import read_regular

MIB = 1 << 20
CONFIG = JsonLimits(size=4 * MIB, values=200_000, members=50_000)
"""Limits of a config. Usual sizes are a few kilobytes, and several hundred with long lists of quantized modules."""
INDEX = JsonLimits(size=64 * MIB, values=2_000_000, members=500_000)
"""Limits of an index. A model with 1.6 trillion parameters has an index of 25 MiB with 200,000 tensors."""
HEADER = JsonLimits(size=16 * MIB, values=4_000_000, members=1_000_000)
"""Limits of a header. A file with 100,000 tensors has a header of 12 MiB."""
MANIFEST_LIMITS = JsonLimits(size=64 * MIB, values=2_000_000, members=500_000)
MOST_FILES = 100_000
"""Maximum number of files of a repository."""


def read_object(file: Path, limits: JsonLimits) -> dict[str, Any]:
    """A JSON object from a file. NaN and infinite numbers become None.

    Raises:
        ModelFilesError: It is not a JSON object, or is too large.
    """
    try:
        content = loads(read_measured(file, limits), limits, not_finite="unknown")
    except BoundedJsonError as error:
        raise ModelFilesError(f"{file} is not usable as JSON: it {plain(str(error), 200)}.") from None
    if not isinstance(content, dict):
        raise ModelFilesError(f"{file} is not a model configuration: it must be a JSON object.")
    return content


def read_measured(file: Path, limits: JsonLimits) -> bytes:
    """The content of a file within limits, for a parser.

    Raises:
        ModelFilesError: It cannot be read.
        BoundedJsonError: It exceeds the limits.
    """
    with reading(file):
        content = read_regular(file, limits.size)
    measure(content, limits)
    return content
