"""The number of vLLM's API server processes in a pod."""

from collections.abc import Callable
from typing import Any

import pytest

from pdinference.api.v1alpha1 import PDInference
from pdinference.checks.api_servers import api_server_problems, api_server_warnings

Make = Callable[..., PDInference]
DYNAMIC = {"source": {"path": "/models/a"}, "lora": {"dynamicLoading": True}}


def problems(resource: PDInference) -> dict[str, str]:
    return {problem.field: problem.message for problem in api_server_problems(resource.spec)}


@pytest.mark.parametrize("part", ["engine", "parameter", "decode"])
@pytest.mark.parametrize("count", [0, -1, "0"])
def test_a_pod_without_a_server_is_refused(resource: Make, part: str, count: Any) -> None:
    found = problems(resource(**{part: {"args": {"api-server-count": count}}}))
    assert list(found) == [f"spec.{part}.args.api-server-count"]


@pytest.mark.parametrize("count", [2, "4"])
def test_adapters_cannot_be_loaded_into_several_servers(resource: Make, count: Any) -> None:
    r = resource(model=DYNAMIC, decode={"args": {"api-server-count": count}})
    assert "dynamicLoading" in problems(r)["spec.decode.args.api-server-count"]


@pytest.mark.parametrize(("count", "fields"), [(1, []), ("1", []), (2, ["spec.decode.args.api-server-count"])])
def test_several_servers_are_warned_of(resource: Make, count: Any, fields: list[str]) -> None:
    r = resource(decode={"args": {"api-server-count": count}})
    assert [warning.field for warning in api_server_warnings(r.spec)] == fields


@pytest.mark.parametrize("count", [1, 2, "16"])
def test_other_numbers_are_accepted(resource: Make, count: Any) -> None:
    assert problems(resource(engine={"args": {"api-server-count": count}})) == {}


@pytest.mark.parametrize("count", ["many", True, [2], None])
def test_what_is_no_number_is_left_to_the_check_of_options(resource: Make, count: Any) -> None:
    args = {} if count is None else {"args": {"api-server-count": count}}
    assert problems(resource(engine=args)) == {}
