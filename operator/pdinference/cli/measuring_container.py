"""The container of a Job that measures: that of an engine with another program, and without its files and Secrets.

Tests: tests/cli/doctor/bandwidth/test_jobs.py, tests/advise/commands/calibrate/test_calibrate.py
"""

from collections.abc import Collection, Sequence
from typing import Any, Final

Json = dict[str, Any]

_DROPPED: Final = frozenset(
    {"ports", "startupProbe", "readinessProbe", "livenessProbe", "lifecycle", "envFrom", "args", "command"}
)


def measuring_container(engine: Json, program: Sequence[str], env: Sequence[Json], volumes: Collection[str]) -> Json:
    """The container.

    Args:
        engine: The container of the engine.
        program: Its program instead.
        env: Variables that remain.
        volumes: Names of the volumes that remain.
    """
    return {field: value for field, value in engine.items() if field not in _DROPPED} | {
        "command": list(program),
        "env": list(env),
        "volumeMounts": [mount for mount in engine.get("volumeMounts", ()) if mount["name"] in volumes],
    }
