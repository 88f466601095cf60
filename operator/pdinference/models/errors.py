"""Errors of downloads and of model files, with messages for users.

Tests: tests/models/test_folder.py, tests/models/files/test_hostile_files.py
"""

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pdinference.api.plain_text import first_of, plain

_NAMED = 3
"""Maximum number of names in a message."""
_LONGEST = 2000
"""Maximum length of a message, which may contain untrusted file names."""


class ModelError(Exception):
    """A model could not be downloaded or is not valid.

    Attributes:
        reason: Reason for a condition, in CamelCase.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(plain(message, _LONGEST))
        self.reason = reason


@contextmanager
def storage(folder: Path) -> Iterator[None]:
    """Convert errors of writing to a folder to a ModelError."""
    try:
        yield
    except OSError as error:
        raise storage_error(error, folder) from error


def storage_error(error: OSError, folder: Path) -> ModelError:
    """The error for a folder that cannot be written."""
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return ModelError("NoSpace", f"No space left in {folder}. Enlarge the volume, or delete models from it.")
    if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
        return ModelError(
            "CannotWrite",
            f"Cannot write to {folder} ({error.strerror}). Grant write access to user 65532 (on a node: "
            "`chown 65532:65532`), and do not mount the volume read-only.",
        )
    return ModelError("StorageFailed", f"Cannot use {folder}: {error.strerror or error}.")


def listed(names: Iterable[str]) -> str:
    """The first names, and the number of the others."""
    return first_of(sorted(names), _NAMED)


class ModelFilesError(ValueError):
    """Files of a model are missing or damaged; the message says what to do."""

    def __init__(self, message: str) -> None:
        super().__init__(plain(message, _LONGEST))


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Convert errors of reading to a ModelFilesError."""
    try:
        yield
    except PermissionError:
        raise ModelFilesError(
            f"User {os.getuid()} cannot read {path}. Make the model world-readable (`chmod -R a+rX`), or add a group "
            "with access to the pods (podTemplate.spec.securityContext.supplementalGroups)."
        ) from None
    except OSError as error:
        if isinstance(error, FileNotFoundError) and path.is_symlink():
            raise ModelFilesError(
                f"{path} is a link to {path.readlink()}, which does not exist. Copy files, not links (`cp -rL`)."
            ) from None
        raise ModelFilesError(f"Cannot read {path}: {error.strerror or error}.") from None
