"""Defaults that depend on the resource: the time to start, API server processes."""

from typing import Any

import pytest

from pdinference.api.names import Role
from pdinference.api.v1alpha1 import Spec, defaults

MODEL = {"model": {"source": {"path": "/models/any"}}}


def _spec(**engine: int) -> Spec:
    architecture = {"config": {}, "weightsBytes": 700_000_000_000}
    model = {"source": {"path": "/models/any"}, "architecture": architecture}
    return Spec.model_validate({"model": model, "engine": engine})


def test_an_hour_unless_the_weights_are_large_or_the_user_says_otherwise() -> None:
    small = Spec.model_validate(MODEL)
    assert defaults.startup_seconds(small) == 3600
    assert defaults.startup_seconds(_spec()) == 900 + 14000
    assert defaults.startup_seconds(_spec(startupSeconds=120)) == 120


@pytest.mark.parametrize(
    ("spec", "servers"),
    [
        ({}, 1),
        ({"engine": {"args": {"api-server-count": 3}}}, 3),
        ({"engine": {"args": {"api-server-count": 3}}, "decode": {"args": {"api-server-count": "2"}}}, 2),
        ({"decode": {"args": {"api-server-count": 0}}}, 1),
        ({"decode": {"args": {"api-server-count": True}}}, 1),
        ({"decode": {"args": {"api-server-count": "many"}}}, 1),
        ({"decode": {"parallelism": {"data": 2}}}, 1),
    ],
)
def test_the_api_server_processes_are_those_that_the_arguments_state(spec: dict[str, Any], servers: int) -> None:
    assert defaults.api_server_processes(Spec.model_validate(MODEL | spec), Role.DECODE) == servers
