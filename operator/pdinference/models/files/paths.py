"""Validates untrusted file names of a model.

Tests: tests/models/files/test_hostile_files.py, tests/models/hubs/test_hostile_hub.py
"""

from pathlib import PurePosixPath

from pdinference.api.plain_text import plain

MANIFEST = ".pdinference.json"
ETAGS = ".pdinference"
"""Folder with the tags of downloaded objects, and with those that are not complete."""
NOTES = (".cache", "._____temp")
"""Folders of the hubs' clients beside the files."""
OWN_NAMES = frozenset({MANIFEST, f"{MANIFEST}.new", ETAGS, *NOTES})
_LONGEST, _LONGEST_PART = 1024, 255
"""Maximum length of a path, and of a file name, in bytes."""


def is_within(path: str) -> bool:
    """Whether a relative path stays within its folder and has only safe characters."""
    if path != plain(path, _LONGEST) or "\\" in path or len(path.encode()) > _LONGEST:
        return False
    parts = path.split("/")
    return all(part not in {"", ".", ".."} and len(part.encode()) <= _LONGEST_PART for part in parts)


def first_folder(path: str) -> str:
    """The first component of a path."""
    return PurePosixPath(path).parts[0]
