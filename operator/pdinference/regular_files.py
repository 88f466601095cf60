"""Opens untrusted files: devices, FIFOs and links out of a volume are rejected, and the size of reads is limited.

Tests: tests/models/files/test_hostile_files.py, tests/runner/test_hostile_places.py
"""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_regular(path: Path, *, within: Path | None = None) -> BinaryIO:
    """Open a regular file for reading. Links are followed.

    Args:
        path: The file.
        within: Folder that must contain the file after links are resolved.

    Raises:
        OSError: It is not there, is something else than a file, or is outside.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        require_regular(descriptor, path)
        if within is not None:
            require_within(descriptor, path, within)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_regular(path: Path, most: int) -> bytes:
    """The content of a regular file.

    Raises:
        OSError: It cannot be read, or is larger than this.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        content = file.read(size + 1) if size <= most else b""  # read() allocates the requested size
    if max(size, len(content)) > most:  # it may grow meanwhile
        raise OSError(errno.EFBIG, f"it is larger than {most:,} bytes", str(path))
    return content


def require_regular(descriptor: int, path: Path) -> None:
    """Raise OSError unless an open file is a regular one."""
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is no regular file", str(path))


def require_within(descriptor: int, path: Path, folder: Path) -> None:
    """Raise OSError unless an open file or folder is in a folder or is the folder itself, links resolved.

    The kernel says where it is, so a link that is exchanged meanwhile changes nothing.
    """
    found = Path(f"/proc/self/fd/{descriptor}").readlink()
    if not found.is_relative_to(folder.resolve()):
        raise OSError(errno.ELOOP, f"a link leads out of {folder}", str(path))
