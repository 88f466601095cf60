"""All modules that depend on the connector support every connector, and no other module names one."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import cast, get_args

import pytest

from pdinference.api.names import ENGINE_ROLES, METRIC_KV_TRANSFERS, Role, TransferResult
from pdinference.api.v1alpha1 import PDInference
from pdinference.api.v1alpha1.connector_rules import CONNECTOR_RULES
from pdinference.api.v1alpha1.connectors import LIMITS, ConnectorLimits, ConnectorName
from pdinference.api.v1alpha1.transfer import Transfer
from pdinference.cli.doctor.way import TransferWay, way_of
from pdinference.engine.connectors.connector import Connector
from pdinference.engine.connectors.handover import PromptHandover
from pdinference.engine.connectors.registry import CONNECTORS, handovers, measurable
from pdinference.engine.router import router_command
from pdinference.engine.vllm import engine_command
from tests.conftest import REPOSITORY
from tests.engine.commands import environment
from tests.engine.connectors.transfers import SETTINGS, Make, through

PACKAGE = REPOSITORY / "operator" / "pdinference"
MAY_NAME_THEM = {
    Path("api/v1alpha1/connectors.py"),
    Path("api/v1alpha1/transfer.py"),
    Path("engine/connectors/registry.py"),
    Path("engine/connectors/handover.py"),  # counters
}


def test_api_limits_modules_and_tests_have_the_same_connectors() -> None:
    names = list(get_args(ConnectorName))
    assert list(LIMITS) == list(CONNECTORS) == list(SETTINGS) == names


def test_the_description_of_the_field_names_each_connector() -> None:
    description = Transfer.model_fields["connector"].description or ""
    assert [name for name in CONNECTORS if not re.search(rf"\b{name}:\s", description)] == []


def test_the_page_has_what_each_connector_needs_and_how_far_it_was_tried() -> None:
    page = (REPOSITORY / "docs" / "kv-transfer.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    for name, connector in CONNECTORS.items():
        assert f"| `{name}` | {connector.tried} |" in rows
        assert sum(row.startswith(f"| `{name}`") for row in rows) == 2, "what it needs is in another table"


@pytest.mark.parametrize("connector", CONNECTORS)
def test_variables_that_users_may_not_set_are_set_for_the_connector(resource: Make, connector: ConnectorName) -> None:
    for role in ENGINE_ROLES:
        found = environment(engine_command(through(resource, connector), role))
        assert LIMITS[connector].environment.keys() <= found.keys()


@pytest.mark.parametrize("connector", CONNECTORS)
def test_what_computes_prompts_in_one_step_turns_off_the_rest(connector: ConnectorName) -> None:
    off = {"enable-prefix-caching": False, "enable-chunked-prefill": False}
    assert (off.items() <= CONNECTORS[connector].options().items()) == LIMITS[connector].one_step


@pytest.mark.parametrize("connector", CONNECTORS)
def test_the_router_may_connect_to_the_bootstrap_port_of_p(connector: ConnectorName) -> None:
    ports = {role: [port.number for port in CONNECTORS[connector].ports(role) if port.router] for role in ENGINE_ROLES}
    handover = CONNECTORS[connector].handover
    assert handover is not None
    bootstrap = handover.bootstrap_port
    assert ports == {Role.PARAMETER: [bootstrap] if bootstrap else [], Role.DECODE: []}


@pytest.mark.parametrize(
    ("connector", "word"),
    [("Nixl", "nixl"), ("Mooncake", "mooncake"), ("LMCache", "prompt"), ("SharedStorage", "prompt")],
)
def test_the_router_hands_over_in_the_connectors_way(resource: Make, connector: str, word: str) -> None:
    assert f"--handover={word}" in router_command(through(resource, connector), "abc").arguments


def test_no_other_module_names_a_connector() -> None:
    """Neither as a text, nor quoted in an expression, nor by a counter of vLLM, nor by its class."""
    modules = {type(connector).__module__ for connector in CONNECTORS.values()}
    found = {path for path in PACKAGE.rglob("*.py") if any(map(_is_a_name, _texts(path))) or _imports(path) & modules}
    assert {path.relative_to(PACKAGE) for path in found} <= MAY_NAME_THEM


class MadeUpHandover(PromptHandover):
    name = "made-up"
    counters = MappingProxyType({b"vllm:made_up_failed_total": (METRIC_KV_TRANSFERS, TransferResult.FAILED)})


class MadeUp(Connector):
    """A connector that this project does not have."""

    vllm_names = ("MadeUpConnector",)
    handover = MadeUpHandover()
    tried = "never"
    is_measured = True


@pytest.fixture
def made_up(resource: Make, monkeypatch: pytest.MonkeyPatch) -> PDInference:
    """A resource with the connector. It is put in after validation, because the API's names are fixed when loaded."""
    monkeypatch.setitem(CONNECTORS, cast("ConnectorName", "MadeUp"), MadeUp())
    monkeypatch.setitem(LIMITS, cast("ConnectorName", "MadeUp"), ConnectorLimits(accelerators="Any", nvlink=True))
    found = through(resource, "Nixl")
    transfer = found.spec.transfer.model_copy(update={"connector": "MadeUp"})
    return found.model_copy(update={"spec": found.spec.model_copy(update={"transfer": transfer})})


def test_a_further_connector_is_known_by_its_line_in_the_registry(made_up: PDInference) -> None:
    """Its class and its row of limits decide; nothing else has to know it."""
    assert "MadeUpConnector" in " ".join(engine_command(made_up, Role.DECODE).arguments)
    assert "--handover=made-up" in router_command(made_up, "abc").arguments
    assert handovers()["made-up"].counters == MadeUpHandover.counters
    assert measurable() == "Nixl and MadeUp"
    assert way_of(made_up.spec) is not TransferWay.OTHER
    assert all(rule.holds(made_up.spec) for rule in CONNECTOR_RULES)
    assert all(rule.holds(made_up.spec.transfer) for rule in Transfer.rules)


def _is_a_name(text: str) -> bool:
    return any(text == name or f"'{name}'" in text for name in CONNECTORS) or text.startswith("vllm:nixl_")


@cache
def _nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def _imports(path: Path) -> set[str]:
    return {node.module for node in _nodes(path) if isinstance(node, ast.ImportFrom) and node.module}


def _texts(path: Path) -> Iterator[str]:
    values = (node.value for node in _nodes(path) if isinstance(node, ast.Constant))
    for value in values:
        if isinstance(value, str | bytes):
            yield value if isinstance(value, str) else value.decode("latin-1")
