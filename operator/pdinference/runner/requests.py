"""Reading the input, line by line: it may be larger than memory."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from pydantic import ValidationError

from pdinference.runner.lines import BatchRequestInput

_PROBLEMS_TOLD = 10


class InvalidInputError(Exception):
    """The input is not a batch file; only a person can mend that. The message names lines and what is wrong."""


@dataclass(frozen=True)
class Survey:
    """What the input holds.

    Attributes:
        digest: SHA-256 of the file.
    """

    total: int
    digest: str


def survey(path: Path) -> Survey:
    """Check every line before anything is sent.

    Raises:
        InvalidInputError: The file cannot be read, is empty, or has lines that are wrong.
    """
    digest = sha256()
    seen: set[str] = set()
    problems: list[str] = []
    for number, line in _lines(path):
        digest.update(line)
        if not line.strip():
            continue
        try:
            request = BatchRequestInput.model_validate_json(line)
        except ValidationError as error:
            problems.append(f"line {number}: {_told(error)}")
            continue
        if request.custom_id in seen:
            problems.append(f"line {number}: custom_id {request.custom_id!r} was used before; each must be unique")
        seen.add(request.custom_id)
    if problems:
        more = f"; and {len(problems) - _PROBLEMS_TOLD} more" if len(problems) > _PROBLEMS_TOLD else ""
        raise InvalidInputError(f"The input is not valid: {'; '.join(problems[:_PROBLEMS_TOLD])}{more}.")
    if not seen:
        raise InvalidInputError("The input holds no requests.")
    return Survey(total=len(seen), digest=digest.hexdigest())


def requests(path: Path, *, without: Collection[str]) -> Iterator[BatchRequestInput]:
    """The requests of a file that was surveyed.

    Args:
        path: The file.
        without: custom_ids to pass over.
    """
    for _, line in _lines(path):
        if line.strip():
            request = BatchRequestInput.model_validate_json(line)
            if request.custom_id not in without:
                yield request


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    try:
        with path.open("rb") as file:
            yield from enumerate(file, start=1)
    except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
        raise InvalidInputError(f"The input cannot be read: {error.strerror}: {path}.") from error


def _told(error: ValidationError) -> str:
    """The first problem of a line."""
    details = error.errors(include_url=False)[0]
    where = ".".join(str(step) for step in details["loc"])
    message = details["msg"].removeprefix("Value error, ")
    return f"{where}: {message}" if where else message
