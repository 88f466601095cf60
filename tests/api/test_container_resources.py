"""Requests and limits that the API server would reject. tests/integration/test_edges.py compares with a real one."""

import pytest

from pdinference.api.container_resources import resource_faults


@pytest.mark.parametrize("amount", ["1", "3Mi", "0"])
def test_huge_pages_come_whole(amount: str) -> None:
    limits = {"memory": "1Gi", "hugepages-2Mi": amount}
    ((path, message),) = resource_faults({}, limits)
    assert path == "limits.hugepages-2Mi"
    assert message.endswith("Write a multiple of 2Mi.")


def test_huge_pages_need_cpu_or_memory() -> None:
    assert dict(resource_faults({}, {"hugepages-2Mi": "4Mi"})).keys() == {"limits.hugepages-2Mi"}
    assert dict(resource_faults({"cpu": "1"}, {"hugepages-2Mi": "4Mi"})) == {}
