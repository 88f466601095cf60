"""Stores output lines in a folder. A new runner resumes after the stored lines.

Lines are appended and synced before they count. A runner that is killed leaves at most one incomplete line, at the end
of a file. The next runner truncates it and sends the request again, so each custom_id has exactly one line.
"""

import errno
import fcntl
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

from pdinference.api.bounded_json import BoundedJsonError, JsonLimits, loads
from pdinference.engine.batch import ERRORS, IDENTITY, OUTPUT, SUSPECTS
from pdinference.regular_files import require_regular, require_within
from pdinference.runner.done import MOST_SUSPECTS, Done, InvalidOutputLineError, suspect_line
from pdinference.runner.lines import LONGEST_OUTPUT_LINE, BatchRequestOutput

_NEW = "batch.new"
_LONGEST_SUSPECT = 8192
_IDENTITY_LIMITS = JsonLimits(size=4096, depth=4)
_SAFE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""Flags to open files without following links, which could leave the folder, and without blocking on a FIFO."""


class UnfitOutputError(Exception):
    """The output cannot be used. A retry does not help."""


class ForeignOutputError(UnfitOutputError):
    """The output has content that is not from an earlier run of this batch."""


class FullOutputError(UnfitOutputError):
    """The output is full.

    Attributes:
        kept: The lines of the last write that are stored.
    """

    def __init__(self, message: str, kept: Sequence[BatchRequestOutput] = ()) -> None:
        super().__init__(message)
        self.kept = kept


class OutputAwayError(Exception):
    """The output is temporarily unavailable."""


class BusyOutputError(OutputAwayError):
    """Another runner is writing to the folder."""


class Results:
    """The output files of one batch.

    Args:
        folder: The folder, which is created if it does not exist.
        identity: Identity of the input and the model. A folder with another identity is rejected.
        within: Folder that must contain `folder` after links are resolved.

    Raises:
        UnfitOutputError: The folder belongs to another batch, or one of the files is not a regular file.
        BusyOutputError: It is in use.
        OSError: It cannot be written.

    Attributes:
        done: The requests that have an output line.
    """

    def __init__(self, folder: Path, identity: str, *, within: Path | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        with ExitStack() as files:
            self._folder = _opened_folder(folder, within)
            files.callback(os.close, self._folder)
            self._output = files.enter_context(_opened(self._folder, OUTPUT))
            self._errors = files.enter_context(_opened(self._folder, ERRORS))
            self._claim(identity)
            self.done = Done()
            _read_done(self._output, self.done, OUTPUT, answered=True)
            _read_done(self._errors, self.done, ERRORS, answered=False)
            _read_suspects(self._folder, self.done)
            self._files = files.pop_all()

    def append(self, lines: Iterable[BatchRequestOutput]) -> None:
        """Write lines and sync them to disk."""
        chosen = list(lines)
        for file, wanted in ((self._output, True), (self._errors, False)):
            written = 0
            for line in chosen:
                if line.answered is wanted:
                    written += file.write(line.as_line())
            if written:
                file.flush()
                os.fsync(file.fileno())

    def strike(self, custom_id: str) -> None:
        """Write a line of the suspects, and sync it to disk."""
        descriptor = _opened_regular(self._folder, SUSPECTS, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        with os.fdopen(descriptor, "ab") as file:
            file.write(suspect_line(custom_id))
            file.flush()
            os.fsync(file.fileno())

    def close(self) -> None:
        """Close the files and release the lock of the folder."""
        self._files.close()

    def _claim(self, identity: str) -> None:
        """Store the identity in the folder, or compare it with the stored one."""
        found = _identity(self._folder)
        if found == identity:
            return
        if found is not None or self._output.tell() or self._errors.tell():
            raise ForeignOutputError(
                "The output folder holds the answers to another input or of another model. Give this batch another "
                "spec.output.persistentVolumeClaim.path, or empty the folder."
            )
        _unlink(self._folder, _NEW)
        draft = os.open(_NEW, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFE, 0o644, dir_fd=self._folder)
        with os.fdopen(draft, "wb") as file:
            file.write(json.dumps({"identity": identity}).encode())
            file.flush()
            os.fsync(file.fileno())
        os.replace(_NEW, IDENTITY, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        os.fsync(self._folder)


def _opened_folder(folder: Path, within: Path | None) -> int:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if within is not None:
            require_within(descriptor, folder, within)
    except OSError as error:
        os.close(descriptor)
        raise UnfitOutputError(
            f"The output folder cannot be used: {error.strerror}. Give this batch another "
            "spec.output.persistentVolumeClaim.path."
        ) from None
    return descriptor


def _opened(folder: int, name: str) -> BinaryIO:
    """Open a file for reading and appending, with an exclusive lock."""
    descriptor = _opened_regular(folder, name, os.O_RDWR | os.O_APPEND | os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise BusyOutputError(f"Another runner is writing {name}.") from None
    return os.fdopen(descriptor, "a+b")


def _opened_regular(folder: int, name: str, flags: int) -> int:
    try:
        descriptor = os.open(name, flags | _SAFE, 0o644, dir_fd=folder)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.EISDIR, errno.ENXIO}:
            raise _no_file(name) from None
        raise
    try:
        require_regular(descriptor, Path(name))
    except OSError:
        os.close(descriptor)
        raise _no_file(name) from None
    return descriptor


def _no_file(name: str) -> UnfitOutputError:
    return UnfitOutputError(
        f"{name} in the output folder is a link, a folder or a device, not a file. Remove it, or give this batch "
        "another spec.output.persistentVolumeClaim.path."
    )


def _identity(folder: int) -> str | None:
    """The identity that is stored in a folder; None if there is none, and empty if it is invalid."""
    try:
        descriptor = _opened_regular(folder, IDENTITY, os.O_RDONLY)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        content = file.read(_IDENTITY_LIMITS.size + 1)
    try:
        note = loads(content, _IDENTITY_LIMITS)
    except BoundedJsonError:
        return ""
    found = note.get("identity") if isinstance(note, dict) else None
    return found if isinstance(found, str) else ""


def _unlink(folder: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return


def _read_done(file: BinaryIO, done: Done, name: str, *, answered: bool) -> None:
    """Read the existing lines. An incomplete last line is truncated."""
    file.seek(0)
    good = 0
    try:
        for line in _whole_lines(file):
            done.add(line, answered=answered)
            good += len(line)
    except InvalidOutputLineError as error:
        raise ForeignOutputError(
            f"{name} in the output folder has a line that is not batch output ({error}). Empty the folder, or give "
            "this batch another spec.output."
        ) from None
    file.truncate(good)
    os.fsync(file.fileno())


def _read_suspects(folder: int, done: Done) -> None:
    try:
        descriptor = _opened_regular(folder, SUSPECTS, os.O_RDONLY)
    except FileNotFoundError:
        return
    with os.fdopen(descriptor, "rb") as file:
        for _ in range(2 * MOST_SUSPECTS):
            if not (line := file.readline(_LONGEST_SUSPECT)):
                return
            done.add_strike(line)


def _whole_lines(file: BinaryIO) -> Iterator[bytes]:
    while line := file.readline(LONGEST_OUTPUT_LINE + 1):
        if line.endswith(b"\n"):
            yield line
        elif len(line) > LONGEST_OUTPUT_LINE:
            raise InvalidOutputLineError("it is too long")
