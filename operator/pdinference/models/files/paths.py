"""Names of files that a publisher chose: within the folder of the model, and fit for a message."""

from pathlib import PurePosixPath

from pdinference.api.plain_text import plain

MANIFEST = ".pdinference.json"
NOTES = (".cache", "._____temp")
"""What the hubs' clients keep beside the files."""
OWN_NAMES = frozenset({MANIFEST, f"{MANIFEST}.new", *NOTES})
_LONGEST, _LONGEST_PART = 1024, 255
"""Bytes that file systems take."""


def is_within(path: str) -> bool:
    """Whether a path names a file within the folder that it is relative to, and nothing odd."""
    if path != plain(path, _LONGEST) or "\\" in path or len(path.encode()) > _LONGEST:
        return False
    parts = path.split("/")
    return all(part not in {"", ".", ".."} and len(part.encode()) <= _LONGEST_PART for part in parts)


def first_folder(path: str) -> str:
    """The outermost folder of a path, or the file itself."""
    return PurePosixPath(path).parts[0]
