"""The steps of the quick start are consistent: manifests are valid, and requests use existing objects."""

import json
import re
from textwrap import dedent

import yaml

from pdinference.checks.examine import examine
from pdinference.engine.vllm import served_model_name
from pdinference.manifests import RenderSettings, render
from tests.conftest import REPOSITORY

_STEPS = (REPOSITORY / "docs" / "quick-start.md").read_text(encoding="utf-8").split("## On your own cluster")[1]
_SETTINGS = RenderSettings(router_image="registry.example/router:1")
_APPLIED = re.findall(r"kubectl apply -f - <<EOF\n(.*?)\n +EOF\n", _STEPS, re.DOTALL)


def test_the_resource_of_the_quick_start_is_valid() -> None:
    (document,) = _APPLIED
    found = examine(yaml.safe_load(dedent(document)), _SETTINGS)
    assert found.resource is not None
    assert not found.problems
    assert not found.warnings


def test_the_question_of_the_quick_start_reaches_its_model() -> None:
    resource = examine(yaml.safe_load(dedent(_APPLIED[0])), _SETTINGS).resource
    assert resource is not None
    services = {o["metadata"]["name"]: o for o in render(resource, _SETTINGS).objects if o["kind"] == "Service"}
    ((service, local, port),) = re.findall(r"port-forward service/(\S+) (\d+):(\d+) &", _STEPS)
    assert int(port) in [entry["port"] for entry in services[service]["spec"]["ports"]]
    ((asked, body),) = re.findall(r"http://localhost:(\d+)/v1/chat/completions.*?-d '(.*?)'\n", _STEPS, re.DOTALL)
    assert asked == local
    assert json.loads(body)["model"] == served_model_name(resource)
