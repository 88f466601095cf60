"""Why a model could not be had, in words for the person who has to do something about it."""

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pdinference.api.plain_text import plain

_NAMED = 3
"""Names that a message has room for."""
_LONGEST = 2000
"""Characters of a message; names of files in it are the publisher's."""


class ModelError(Exception):
    """A model could not be downloaded, or is not as it should be.

    Attributes:
        reason: CamelCase, for a condition.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(plain(message, _LONGEST))
        self.reason = reason


@contextmanager
def storage(folder: Path) -> Iterator[None]:
    """Turn what a file system refuses into words."""
    try:
        yield
    except OSError as error:
        raise storage_error(error, folder) from error


def storage_error(error: OSError, folder: Path) -> ModelError:
    """Why a folder could not be written."""
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return ModelError(
            "NoSpace", f"There is no space left in {folder}. Enlarge the volume, or remove models from it."
        )
    if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
        return ModelError(
            "CannotWrite",
            f"{folder} cannot be written ({error.strerror}). Let user 65532 write there (for a node's folder: "
            "`chown 65532:65532`), and do not mount it read-only.",
        )
    return ModelError("StorageFailed", f"{folder} cannot be used: {error.strerror or error}.")


def listed(names: Iterable[str]) -> str:
    """A few names, and how many more there are."""
    known = sorted(names)
    more = f" and {len(known) - _NAMED} more" if len(known) > _NAMED else ""
    return ", ".join(known[:_NAMED]) + more


class ModelFilesError(ValueError):
    """A model's files are absent or damaged; the message says what to do."""

    def __init__(self, message: str) -> None:
        super().__init__(plain(message, _LONGEST))


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn what a file system refuses to read into words."""
    try:
        yield
    except PermissionError:
        raise ModelFilesError(
            f"User {os.getuid()} may not read {path}. Let everybody read the model (`chmod -R a+rX`), or give pods "
            "a group that may (podTemplate.spec.securityContext.supplementalGroups)."
        ) from None
    except OSError as error:
        if isinstance(error, FileNotFoundError) and path.is_symlink():
            raise ModelFilesError(
                f"{path} is a link to {path.readlink()}, which is not there. Copy files, not links (`cp -rL`)."
            ) from None
        raise ModelFilesError(f"{path} cannot be read: {error.strerror or error}.") from None
