"""vLLM's metrics that are read, and its KV connectors that are rendered, exist in each release that has a list."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pdinference.api.names import Role
from pdinference.checks.options import lists
from pdinference.engine.connectors.configuration import kv_transfer_config
from pdinference.engine.connectors.registry import CONNECTORS
from tests.checks.vllm_names import name_list
from tests.conftest import REPOSITORY
from tests.engine.connectors.transfers import SETTINGS, Make, through

FOLDER = Path(__file__).parent / "vllm-names"
READERS = ("operator/pdinference", "charts/pdinference-operator")
SUFFIX = re.compile(r"_(total|count|sum|bucket)$")
TIERS = {"kvTiers": {"cpu": {"size": "1Gi"}, "disk": {"size": "2Gi"}}}

each_release = pytest.mark.parametrize("version", sorted(lists()))


def listed(version: str, kind: str) -> set[str]:
    lines = (FOLDER / f"{version}.txt").read_text(encoding="utf-8").splitlines()
    return {line.removeprefix(f"{kind} ") for line in lines if line.startswith(f"{kind} ")}


def named() -> set[str]:
    """Each metric of vLLM that operator, router, command line, dashboard or alerts name."""
    files = [file for folder in READERS for file in (REPOSITORY / folder).rglob("*") if "__pycache__" not in file.parts]
    texts = [file.read_text(encoding="utf-8") for file in files if file.is_file()]
    return {name for text in texts for name in re.findall(r"\bvllm:[a-z0-9_]+", text)}


def rendered(resource: Make) -> Iterator[str]:
    """Each class of vLLM in the transfer configurations, those within others included."""
    resources = [through(resource, connector, parameter=TIERS, decode=TIERS) for connector in ("Nixl", "Mooncake")]
    resources += [through(resource, connector) for connector in SETTINGS]
    for each in resources:
        for role in (Role.PARAMETER, Role.DECODE):
            config = kv_transfer_config(each, role)
            for part in (config, *config.get("kv_connector_extra_config", {}).get("connectors", ())):
                if "kv_connector_module_path" not in part:
                    yield part["kv_connector"]


@each_release
def test_every_metric_that_is_read_exists(version: str) -> None:
    metrics = listed(version, "metric")
    assert {name for name in named() if not {name, SUFFIX.sub("", name)} & metrics} == set()


@each_release
def test_every_connector_that_is_rendered_exists(version: str, resource: Make) -> None:
    names = {*rendered(resource), *(name for connector in CONNECTORS.values() for name in connector.vllm_names)}
    assert {"NixlConnector", "MultiConnector", "OffloadingConnector"} <= names
    assert names - listed(version, "connector") == set()


@pytest.mark.vllm
def test_the_list_is_that_of_the_installed_release() -> None:
    import vllm  # noqa: PLC0415

    stored = (FOLDER / f"{vllm.__version__}.txt").read_text(encoding="utf-8")
    assert stored == name_list(Path(vllm.__file__).parent), "run `make vllm-options`"
