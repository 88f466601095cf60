"""Tags of downloaded objects, noted beside the files: an interrupted download keeps what has not changed since.

Tests: tests/integration/test_bucket.py
"""

import hashlib
from pathlib import Path

from pdinference.models.files.paths import ETAGS

_LONGEST = 1024


def unfinished(folder: Path, path: str) -> Path:
    """The file to which an object is downloaded, before it gets its name."""
    return _beside(folder, path, ".part")


def note_etag(folder: Path, path: str, etag: str) -> None:
    """Note the tag of an object that has arrived."""
    _beside(folder, path, ".etag").write_text(etag, encoding="utf-8")


def noted_etag(folder: Path, path: str) -> str | None:
    """The tag of the object in this file; None if it is not known."""
    note = _beside(folder, path, ".etag")
    if note.is_symlink() or not note.is_file() or note.stat().st_size > _LONGEST:
        return None
    return note.read_text(encoding="utf-8", errors="replace")


def _beside(folder: Path, path: str, suffix: str) -> Path:
    place = folder / ETAGS
    if place.is_symlink():
        place.unlink()
    place.mkdir(exist_ok=True)
    return place / f"{hashlib.sha256(path.encode()).hexdigest()}{suffix}"
