"""JSON files of a model: how large they may be, and what is done with more."""

from pathlib import Path
from typing import Any

from pdinference.api.bounded_json import BoundedJsonError, Limits, loads, measure
from pdinference.api.plain_text import plain
from pdinference.models.errors import ModelFilesError, reading
from pdinference.regular_files import read_regular

MIB = 1 << 20
CONFIG = Limits(size=4 * MIB, values=200_000, members=50_000)
"""Configs have some kilobytes; long lists of quantised modules make it some hundred."""
INDEX = Limits(size=64 * MIB, values=2_000_000, members=500_000)
"""The index of a model with 1.6 trillion parameters has 25 MiB and 200,000 tensors."""
HEADER = Limits(size=16 * MIB, values=4_000_000, members=1_000_000)
"""The header of a file with 100,000 tensors has 12 MiB."""
MANIFEST_LIMITS = Limits(size=64 * MIB, values=2_000_000, members=500_000)
MOST_FILES = 100_000
"""Files of a repository."""


def read_object(file: Path, limits: Limits) -> dict[str, Any]:
    """A JSON object from a file; NaN and infinite numbers in it are None.

    Raises:
        ModelFilesError: It is none, or too large.
    """
    try:
        content = loads(read_measured(file, limits), limits, not_finite="unknown")
    except BoundedJsonError as error:
        raise ModelFilesError(f"{file} is not usable as JSON: it {plain(str(error), 200)}.") from None
    if not isinstance(content, dict):
        raise ModelFilesError(f"{file} is not a model configuration: it must be a JSON object.")
    return content


def read_measured(file: Path, limits: Limits) -> bytes:
    """The bytes of a file that keeps limits, for a parser.

    Raises:
        ModelFilesError: It cannot be read.
        BoundedJsonError: It does not keep them.
    """
    with reading(file):
        content = read_regular(file, limits.size)
    measure(content, limits)
    return content
