"""Stores responses in a ConfigMap, with the files of an output folder as keys.

Each write has the resource version as a precondition, so that only one of two runners can write. If the response to a
write is lost, the runner finds its write in the object. The runner's only permission is to patch the ConfigMap, so an
empty patch reads it.
"""

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pdinference.cluster.client import ApiServer
from pdinference.cluster.errors import ApiError
from pdinference.engine.batch import ERRORS, IDENTITY, OUTPUT, SUSPECTS, WRITTEN
from pdinference.runner.done import Done, InvalidOutputLineError, suspect_line
from pdinference.runner.lines import BatchRequestOutput
from pdinference.runner.results import (
    ForeignOutputError,
    FullOutputError,
    OutputAwayError,
    UnfitOutputError,
)

MOST_BYTES = 1_000_000
"""Maximum size of the data. Kubernetes allows 1 MiB; the rest is reserved for metadata."""
SMALLEST_LINE = 116
"""Size of the shortest output line. An input is rejected early if even such lines exceed the limit."""
_BYTES_PER_S = 256 << 10
"""Maximum write rate in bytes per second. Each write sends all data, and etcd keeps old versions for minutes."""
_PAUSE_S = 3.0
_TRIES = 20
_INSTEAD = "Use spec.output.persistentVolumeClaim, or split the input."
_CONFLICT, _NOT_FOUND, _FORBIDDEN = 409, 404, 403


def require_room(requests: int) -> None:
    """Check that the responses to this number of requests can fit, before the first is sent.

    Raises:
        FullOutputError: Even the shortest responses do not fit.
    """
    if requests * SMALLEST_LINE > MOST_BYTES:
        raise FullOutputError(
            f"The responses to {requests:,} requests do not fit in a ConfigMap, which holds {MOST_BYTES:,} bytes. "
            f"No request was sent. {_INSTEAD}"
        )


class ConfigMapStore:
    """The output of one batch.

    Attributes:
        done: The requests that have an output line.
    """

    def __init__(self, api: ApiServer, path: str, live: Mapping[str, Any] | None, *, pause_s: float = _PAUSE_S) -> None:
        self._api = api
        self._path = path
        self._pause_s = pause_s
        self._rest_until = 0.0
        self._note(live)
        self.done = _done(self._data)

    @classmethod
    async def opened(cls, api: ApiServer, path: str, identity: str, *, pause_s: float = _PAUSE_S) -> "ConfigMapStore":
        """Read the ConfigMap, and store the identity of the batch in it.

        Raises:
            UnfitOutputError: The ConfigMap was deleted, or has other content.
            OutputAwayError: The API server rejected the request.
        """
        store = cls(api, path, await _insisted(api, path, {}, pause_s), pause_s=pause_s)
        await store._claim(identity)
        return store

    async def append(self, lines: Sequence[BatchRequestOutput]) -> None:
        """Write lines, and return when they are stored.

        Raises:
            FullOutputError: Not all lines fit. The lines that fit are stored.
            OutputAwayError: The API server rejected the request.
        """
        await asyncio.sleep(max(0.0, self._rest_until - asyncio.get_running_loop().time()))
        fitting, data = self._with(lines)
        if fitting:
            await self._write(data)
        self._rest_until = asyncio.get_running_loop().time() + _size(data) / _BYTES_PER_S
        if len(fitting) < len(lines):
            raise FullOutputError(
                f"The ConfigMap is full: it holds {MOST_BYTES:,} bytes, and the next response does not fit. The stored "
                f"responses are kept. {_INSTEAD}",
                fitting,
            )

    async def strike(self, custom_id: str) -> None:
        """Write a line of the suspects, if it fits.

        Raises:
            OutputAwayError: The API server rejected the request.
        """
        data = {**self._data, SUSPECTS: self._data.get(SUSPECTS, "") + suspect_line(custom_id).decode()}
        if _size(data) <= MOST_BYTES:
            await self._write(data)

    async def _claim(self, identity: str) -> None:
        note = json.dumps({"identity": identity})
        found = self._data.get(IDENTITY)
        if found == note:
            return
        if found is not None or self._data.get(OUTPUT) or self._data.get(ERRORS):
            raise ForeignOutputError(
                "The ConfigMap holds the answers to another input or of another model. Give this batch another "
                "spec.output.configMap.name."
            )
        await self._write({**self._data, IDENTITY: note})

    def _with(self, lines: Iterable[BatchRequestOutput]) -> tuple[list[BatchRequestOutput], dict[str, str]]:
        """The lines that fit, and the data with them."""
        data, fitting, room = dict(self._data), [], MOST_BYTES - _size(self._data)
        for line in lines:
            text = line.as_line()
            room -= len(text)
            if room < 0:
                break
            key = OUTPUT if line.answered else ERRORS
            data[key] = data.get(key, "") + text.decode()
            fitting.append(line)
        return fitting, data

    async def _write(self, data: dict[str, str]) -> None:
        for _ in range(_TRIES):
            patch = {"metadata": {"resourceVersion": self._version}, "data": data}
            live = await _insisted(self._api, self._path, patch, self._pause_s)
            if live is not None:
                self._note(live)
                return
            before = self._data
            self._note(await _insisted(self._api, self._path, {}, self._pause_s))
            if self._data == data:
                return  # an earlier write of this runner succeeded, but its response was lost
            if self._data != before:
                raise OutputAwayError("Another client has changed the ConfigMap.")
        raise OutputAwayError("Other clients change the ConfigMap repeatedly.")

    def _note(self, live: Mapping[str, Any] | None) -> None:
        found = live or {}
        self._version = found.get("metadata", {}).get("resourceVersion", "")
        self._data = {key: text for key, text in (found.get("data") or {}).items() if key in WRITTEN}


async def _insisted(api: ApiServer, path: str, patch: dict[str, Any], pause_s: float) -> dict[str, Any] | None:
    """The object after a patch; None if the resource version of the patch is out of date."""
    for attempt in range(_TRIES):
        try:
            return await api.merge(path, patch)
        except ApiError as error:
            if error.status == _CONFLICT and patch:
                return None
            if error.status == _NOT_FOUND:
                raise UnfitOutputError("The output ConfigMap was deleted. Create the PDBatch again.") from error
            # The API server may not have observed the new role binding yet.
            if not (error.transient or error.status == _FORBIDDEN) or attempt == _TRIES - 1:
                raise OutputAwayError(f"The ConfigMap cannot be written: {error.message}") from error
        await asyncio.sleep(pause_s)
    raise AssertionError("unreachable")


def _done(data: Mapping[str, str]) -> Done:
    done = Done()
    try:
        for key, answered in ((OUTPUT, True), (ERRORS, False)):
            for line in data.get(key, "").split("\n"):
                if line:
                    done.add(line, answered=answered)
        for line in data.get(SUSPECTS, "").split("\n"):
            done.add_strike(line)
    except InvalidOutputLineError as error:
        raise ForeignOutputError(
            f"The ConfigMap has a line that is not batch output ({error}). Give this batch another "
            "spec.output.configMap.name."
        ) from None
    return done


def _size(data: Mapping[str, str]) -> int:
    return sum(len(text.encode()) for text in data.values())
