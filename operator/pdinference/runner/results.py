"""The output folder: answers that are on disk before they count, and a new runner that goes on where one died.

A line is appended and synced as a whole. A runner that is killed leaves at most one line unfinished, at the end of a
file; the next one cuts it off and sends that request again, so that each custom_id has one line in the end.
"""

import fcntl
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import BinaryIO

from pdinference.engine.batch import ERRORS, IDENTITY, OUTPUT
from pdinference.runner.lines import BatchRequestOutput


class UnfitOutputError(Exception):
    """The output cannot take the answers; only a person can mend that."""


class ForeignOutputError(UnfitOutputError):
    """The output holds something else than an earlier part of this batch; only a person can decide."""


class FullOutputError(UnfitOutputError):
    """There is no room for more.

    Attributes:
        kept: Of the lines that were to be written, those that fitted.
    """

    def __init__(self, message: str, kept: Sequence[BatchRequestOutput] = ()) -> None:
        super().__init__(message)
        self.kept = kept


class OutputAwayError(Exception):
    """The output cannot be written right now."""


class BusyOutputError(OutputAwayError):
    """Another runner writes into the folder right now."""


class Results:
    """The files of one batch.

    Args:
        folder: Where they are; made when it is not there.
        identity: What the answers depend on. A folder with another identity holds answers to other questions.

    Raises:
        ForeignOutputError: The folder is not of this batch.
        BusyOutputError: It is in use.
        OSError: It cannot be written.

    Attributes:
        answered: custom_ids that have a line in the output.
        failed: custom_ids that have a line among the errors.
    """

    def __init__(self, folder: Path, identity: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._output = _opened(folder / OUTPUT)
        self._errors = _opened(folder / ERRORS)
        self._claim(identity)
        self.answered = _known(self._output)
        self.failed = _known(self._errors)

    def append(self, lines: Iterable[BatchRequestOutput]) -> None:
        """Write lines, and return when they are on disk."""
        chosen = list(lines)
        for file, wanted in ((self._output, True), (self._errors, False)):
            text = "".join(f"{line.model_dump_json()}\n" for line in chosen if line.answered is wanted)
            if text:
                file.write(text.encode())
                file.flush()
                os.fsync(file.fileno())

    def close(self) -> None:
        """Let go of the folder."""
        self._output.close()
        self._errors.close()

    def _claim(self, identity: str) -> None:
        """Note whose answers these are, or find that they are this batch's already."""
        note = self._folder / IDENTITY
        try:
            found = json.loads(note.read_bytes()).get("identity")
        except FileNotFoundError:
            found = None
        except (ValueError, AttributeError):
            found = ""
        if found == identity:
            return
        if found is not None or self._output.tell() or self._errors.tell():
            raise ForeignOutputError(
                "The output folder holds the answers to another input or of another model. Give this batch another "
                "spec.output.persistentVolumeClaim.path, or empty the folder."
            )
        draft = note.with_suffix(".new")
        with draft.open("wb") as file:
            file.write(json.dumps({"identity": identity}).encode())
            file.flush()
            os.fsync(file.fileno())
        draft.replace(note)
        _sync_folder(self._folder)


def _opened(path: Path) -> BinaryIO:
    """Open for reading and appending, alone."""
    file = path.open("a+b")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise BusyOutputError(f"Another runner is writing {path.name}.") from None
    return file


def _known(file: BinaryIO) -> set[str]:
    """The custom_ids of the lines that are there; a last line without its end is cut off."""
    file.seek(0)
    known: set[str] = set()
    good = 0
    for line in file:
        if not line.endswith(b"\n"):
            break
        known.add(custom_id_of(line, f"{Path(file.name).name} in the output folder"))
        good += len(line)
    file.truncate(good)
    os.fsync(file.fileno())
    return known


def custom_id_of(line: bytes | str, place: str) -> str:
    """Which request a line of output answers.

    Raises:
        ForeignOutputError: It is no such line.
    """
    try:
        return str(json.loads(line)["custom_id"])
    except (ValueError, KeyError, TypeError):
        raise ForeignOutputError(
            f"{place} has a line that is no batch output. Empty the output, or give this batch another one "
            "(spec.output)."
        ) from None


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
