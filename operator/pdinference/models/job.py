"""Reports the progress of a download to the operator, in an annotation of the pod's Job.

Tests: tests/integration/test_model.py
"""

import asyncio
import json
import logging
from collections.abc import Callable
from typing import Any

from pdinference.api import names
from pdinference.cluster.client import ApiServer, load_configuration
from pdinference.cluster.errors import ApiError
from pdinference.cluster.kinds import JOB
from pdinference.models.errors import ModelError
from pdinference.models.progress import DownloadProgress, Phase

_LOG = logging.getLogger(__name__)
_EVERY_S = 3.0
_LAST_TRIES = 20


async def reported(work: Callable[[], object], progress: DownloadProgress, *, namespace: str, job: str) -> None:
    """Run the work in a thread, and report its progress until it ends.

    Raises:
        ModelError: The work failed. The failure has been reported, too.
    """
    api = ApiServer(await load_configuration(None))
    job_annotation = _JobAnnotation(api, JOB.path(namespace, job))
    try:
        running = asyncio.create_task(asyncio.to_thread(work))
        while not running.done():
            await job_annotation.write(progress.as_json())
            await asyncio.wait({running}, timeout=_EVERY_S)
        failure = running.exception()
        if isinstance(failure, ModelError):
            progress.phase, progress.problem = Phase.FAILED, (failure.reason, str(failure))
        await job_annotation.insist(progress.as_json())
        if failure is not None:
            raise failure
    finally:
        await api.close()


class _JobAnnotation:
    def __init__(self, api: ApiServer, path: str) -> None:
        self._api = api
        self._path = path
        self._written: dict[str, Any] | None = None

    async def write(self, content: dict[str, Any]) -> bool:
        """Write changes. A failure is logged and does not stop the download."""
        if content == self._written:
            return True
        annotation = {names.ANNOTATION_MODEL: json.dumps(content, separators=(",", ":"), sort_keys=True)}
        try:
            await self._api.merge(self._path, {"metadata": {"annotations": annotation}})
        except ApiError as error:
            _LOG.warning("Cannot report the progress: %s", error)
            return False
        self._written = content
        return True

    async def insist(self, content: dict[str, Any]) -> None:
        """Write the final report, with retries, because the operator needs the facts about the model."""
        for _ in range(_LAST_TRIES):
            if await self.write(content):
                return
            await asyncio.sleep(_EVERY_S)
        raise ModelError("NotReported", "The API server did not accept the result. The Job retries.")
