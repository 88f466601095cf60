"""The router pods of a resource that can be asked.

Tests: tests/cli/test_status_startup.py, tests/cli/test_chat.py
"""

from collections.abc import Iterable, Mapping
from typing import Any

from pdinference.api.names import Role
from pdinference.cluster.state.pods import pod_record


def ready_routers(pods: Iterable[Mapping[str, Any]]) -> list[str]:
    """The names of the router pods that are ready and stay so, of pods as the API server has them."""
    summaries = (record.summary for record in map(pod_record, pods) if record is not None)
    return [one.name for one in summaries if one.role is Role.ROUTER and one.ready and not one.terminating]
