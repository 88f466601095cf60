"""The order of waiting requests: vLLM's option, the router's, and what is refused."""

from collections.abc import Callable
from typing import Any

import pytest

from pdinference.api.names import Role
from pdinference.api.v1alpha1 import PDInference
from pdinference.checks import examine
from pdinference.cli.router import run_command
from pdinference.engine.compile_cache import compile_cache_key
from pdinference.engine.router import router_command
from pdinference.engine.vllm import engine_command
from pdinference.manifests import RenderSettings
from pdinference.router.fair_shares import HEADER

Json = dict[str, Any]
Make = Callable[..., Json]
FAIR: Json = {
    "secretName": "clients",
    "order": "FairShares",
    "limits": [{"name": "chat", "priority": "High", "share": 3}, {"name": "batch", "priority": "Low"}, {"name": "b"}],
}


def with_keys(document: Make, keys: Json, **spec: Any) -> Json:
    return document(router={"apiKeys": keys}, **spec)


def refused(document: Json) -> dict[str, str]:
    return {one.field: one.message for one in examine(document, RenderSettings()).problems}


def test_engines_take_requests_in_the_order_of_the_router(document: Make) -> None:
    resource = PDInference.model_validate(with_keys(document, FAIR))
    for role in (Role.PARAMETER, Role.DECODE):
        assert "--scheduling-policy=priority" in engine_command(resource, role).arguments
    with run_command.make_context("run", list(router_command(resource, "r").arguments)) as context:
        assert context.params["fair_shares"]
        assert context.params["standing"] == ("chat=High:3", "batch=Low:")


def test_without_it_requests_are_taken_as_they_come(document: Make) -> None:
    for keys in ({"secretName": "clients"}, {"secretName": "clients", "order": "Arrival", "limits": [{"name": "a"}]}):
        resource = PDInference.model_validate(with_keys(document, keys))
        assert not any("scheduling" in argument for argument in engine_command(resource, Role.PARAMETER).arguments)
        arguments = router_command(resource, "r").arguments
        assert not any("fair" in argument or "standing" in argument for argument in arguments)


def test_what_is_compiled_does_not_depend_on_it(document: Make) -> None:
    spec = PDInference.model_validate(document()).spec
    options: tuple[Json, Json] = ({}, {"scheduling-policy": "priority"})
    assert len({compile_cache_key(spec, Role.DECODE, one) for one in options}) == 1


def test_places_without_an_order_are_refused(document: Make) -> None:
    for more in ({"priority": "High"}, {"share": 2}):
        keys = {"secretName": "clients", "limits": [{"name": "a"}, {"name": "b", **more}]}
        (message,) = refused(with_keys(document, keys)).values()
        assert "need order: FairShares" in message


def test_the_option_beside_the_field_is_refused(document: Make) -> None:
    args = {"args": {"scheduling-policy": "priority"}}
    found = refused(with_keys(document, FAIR, engine=args))
    assert "spec.router.apiKeys.order sets this option" in found["spec.engine.args.scheduling-policy"]
    assert not refused(document(engine=args)), "clients may choose their places themselves"


@pytest.mark.vllm
def test_vllm_reads_the_place_from_the_header() -> None:
    from vllm.entrypoints.generate.base.serving import PRIORITY_HEADER  # noqa: PLC0415 - only where vLLM is

    assert PRIORITY_HEADER == HEADER
