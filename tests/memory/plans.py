"""Specs and plans for the tests of the memory planner."""

from typing import Any

from pdinference.api.names import Role
from pdinference.api.v1alpha1 import Spec
from pdinference.memory import Inputs, RolePlan, model_facts, plan_role
from pdinference.memory.plan import plan_settings
from pdinference.memory.settings import Settings
from tests.memory.configs import Config

H200 = ["NVIDIA-H200"]


def spec(
    *, model: Config | None = None, engine: Config | None = None, parameter: Config | None = None, **decode: Any
) -> Spec:
    """A spec on H200s unless a role sets other products."""
    role = {"accelerator": {"products": H200}, **decode}
    return Spec.model_validate(
        {
            "model": {"source": {"path": "/models/any"}, "maxModelLength": 8192, **(model or {})},
            "engine": {"enforceEager": True, **(engine or {})},
            "parameter": {"accelerator": {"products": H200}} if parameter is None else parameter,
            "decode": role,
        }
    )


def plan(config: Config, **changes: Any) -> RolePlan:
    """The plan of D for a model and a spec with some changes."""
    return plan_role(Inputs(spec(**changes), model_facts(config)), Role.DECODE)


def stages_plan(config: Config, settings: Settings) -> RolePlan:
    """A plan of settings that no spec of D may have, such as several pipeline stages."""
    inputs = Inputs(spec(), model_facts(config))
    return plan_settings(inputs, settings, plan(config).memory)


def known(value: float | None) -> float:
    """A value that the test expects to be there."""
    assert value is not None
    return value
