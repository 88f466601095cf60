"""The functions that run in the isolated process, for the webhook and for reconciles.

The worker imports this module, so it must import no client and no event loop.

Tests: tests/examination/test_client.py, tests/examination/test_effective_spec.py
"""

import pickle
from collections.abc import Callable, Mapping

from pdinference.admission.review import review_tasks
from pdinference.api.v1alpha1 import PDBatch
from pdinference.checks import examine_batch
from pdinference.cluster.state.records import ResourceRecord
from pdinference.examination.desired import InvalidSpecError, compile_desired, render_again
from pdinference.isolation.calls import Task
from pdinference.manifests import RenderSettings

PROGRAM = f"{__name__}:tasks"
COMPILE, RENDER, BATCH = "compile", "render", "batch"


def tasks(settings: RenderSettings) -> Mapping[str, Task]:
    """The functions by name."""
    return {
        **review_tasks(settings),
        COMPILE: _of_record(lambda record: compile_desired(record, settings)),
        RENDER: _of_record(lambda record: render_again(record, settings)),
        BATCH: _of_record(lambda record, **options: _valid_batch(record, settings, **options)),
    }


def _of_record(function: Callable[..., object]) -> Task:
    """A task that calls the function with a pickled record and options, and returns its result or InvalidSpecError."""

    def task(payload: bytes) -> bytes:
        record, options = pickle.loads(payload)  # noqa: S301 - made by the operator
        try:
            return pickle.dumps(function(record, **options))
        except InvalidSpecError as error:
            return pickle.dumps(error)

    return task


def _valid_batch(record: ResourceRecord, settings: RenderSettings, *, begun: bool) -> PDBatch:
    examination = examine_batch(record.body(), settings, begun=begun, admitted=True)
    if examination.batch is None:
        raise InvalidSpecError.from_problems(examination.problems)
    return examination.batch
