"""Downloads small files of a repository, such as its config, to a temporary folder.

Tests: tests/models/hubs/test_hostile_hub.py, tests/models/test_fetch.py
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pdinference.api.bounded_json import JsonLimits
from pdinference.models.errors import storage
from pdinference.models.hubs.hub import Hub, RemoteFile
from pdinference.models.limits import no_file_larger_than


@contextmanager
def downloaded(hub: Hub, file: RemoteFile, commit: str, limits: JsonLimits) -> Iterator[Path]:
    """Download a file to a temporary folder.

    Raises:
        ModelError: The hub returned an error, or the file is too large.
    """
    with tempfile.TemporaryDirectory() as folder:
        with storage(Path(folder)), no_file_larger_than(limits.size):
            hub.download(file, commit, Path(folder))
        yield Path(folder, file.path)
