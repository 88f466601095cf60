"""Values: each one is described, and each mistake is rejected with a message that names the value."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.charts.helm import CHART, VALUE_SETS, HelmError, Values, helm, rendered
from tests.conftest import Golden

SCHEMA = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
README = CHART / "README.md"
TABLE = re.compile(r"^\| value \| default \| meaning \|\n(?:\|.*\n)*", re.MULTILINE)
FOR_PARENT_CHARTS = {"global", "enabled"}


def properties(schema: Values, path: str = "") -> Iterator[tuple[str, Values]]:
    """Every property of the schema, with its path."""
    for name, property_schema in schema.get("properties", {}).items():
        yield path + name, property_schema
        yield from properties(property_schema, f"{path}{name}.")


def leaves() -> Iterator[tuple[str, Values, Any]]:
    """Every value that a user sets, with its schema and default."""
    for path, schema in properties(SCHEMA):
        if "properties" not in schema and path not in FOR_PARENT_CHARTS:
            yield path, schema, default(path)


def default(path: str) -> Any:
    value = DEFAULTS
    for name in path.split("."):
        value = value[name]
    return value


def asking(authentication: Values) -> Values:
    """With KEDA, which asks Prometheus so."""
    return {"autoscaling": {"keda": {"enabled": True, "prometheus": "http://p", "authentication": authentication}}}


@pytest.mark.parametrize("values", VALUE_SETS.values(), ids=VALUE_SETS.keys())
def test_lint_has_no_complaint(values: Values) -> None:
    helm("lint", "--strict", values=values)


@pytest.mark.parametrize(
    ("values", "complaints"),
    [
        ({"replica": 2}, ["replica", "not allowed"]),
        ({"replicas": "two"}, ["/replicas", "want integer"]),
        ({"replicas": -1}, ["/replicas", "minimum"]),
        ({"replicas": 2, "leaderElection": {"enabled": False}}, ["leaderElection.enabled must be true"]),
        ({"image": {"repository": "ghcr.io/team/operator:1.0"}}, ["/image/repository", "pattern"]),
        ({"image": {"tag": 1.0}}, ["/image/tag", "want string"]),
        ({"image": {"digest": "0" * 64}}, ["/image/digest", "pattern"]),
        ({"image": {"pullPolicy": "always"}}, ["/image/pullPolicy", "IfNotPresent"]),
        ({"router": {"images": {}}}, ["/router", "images", "not allowed"]),
        ({"watchNamespaces": "models"}, ["/watchNamespaces", "want array"]),
        ({"watchNamespaces": ["Models"]}, ["/watchNamespaces/0", "pattern"]),
        ({"watchNamespaces": ["models", "models"]}, ["/watchNamespaces", "equal"]),
        ({"workers": 0}, ["/workers", "minimum"]),
        ({"allowedHostPaths": ["/srv"]}, ["/allowedHostPaths/0", "want object"]),
        ({"allowedHostPaths": [{"path": "srv"}]}, ["/allowedHostPaths/0/path", "pattern"]),
        ({"allowedHostPaths": [{"path": "/srv", "readonly": False}]}, ["/allowedHostPaths/0", "readonly"]),
        ({"policy": {"volumeTypes": ["hostPath"]}}, ["/policy/volumeTypes/0", "nfs"]),
        ({"policy": {"secret": ["x"]}}, ["/policy", "secret", "not allowed"]),
        ({"log": {"level": "loud"}}, ["/log/level", "warning"]),
        ({"extraArgs": "--workers=2"}, ["/extraArgs", "want array"]),
        ({"extraEnv": [{"value": "x"}]}, ["/extraEnv/0", "name"]),
        ({"podAnnotations": {"on": True}}, ["/podAnnotations/on", "want string"]),
        ({"fullnameOverride": "Operator_1"}, ["/fullnameOverride", "pattern"]),
        (
            {"metrics": {"service": {"enabled": False}, "serviceMonitor": {"enabled": True}}},
            ["needs metrics.service.enabled"],
        ),
        (
            {"webhook": {"clientCertificate": {"enabled": True, "caConfigMap": "ca"}}},
            ["caConfigMap needs webhook.clientCertificate.names"],
        ),
        (asking({"modes": ["bearer"]}), ["authentication needs a name"]),
        (asking({"name": "prometheus", "mode": "bearer"}), ["/autoscaling/keda/authentication", "mode"]),
        (asking({"name": "prometheus", "modes": ["password"]}), ["/autoscaling/keda/authentication/modes/0"]),
    ],
    ids=str,
)
def test_a_mistake_is_refused_and_named(values: Values, complaints: list[str]) -> None:
    with pytest.raises(HelmError) as refusal:
        rendered(values)
    assert not [complaint for complaint in complaints if complaint not in str(refusal.value)], refusal.value


def test_a_parent_chart_may_share_values_and_name_a_condition() -> None:
    assert rendered({"global": {"anything": 1}, "enabled": True}) == rendered()


def test_the_schema_describes_every_value_and_admits_no_other() -> None:
    for path, schema in properties(SCHEMA):
        assert schema.get("description", "").endswith("."), path
        assert "properties" not in schema or schema["additionalProperties"] is False, path
    assert SCHEMA["additionalProperties"] is False


def test_the_schema_knows_exactly_the_values_of_the_values_file() -> None:
    def paths(values: Any, schema: Values, path: str = "") -> Iterator[str]:
        if "properties" not in schema:
            yield path
            return
        for name, value in values.items():
            assert name in schema["properties"], f"{path}.{name}"
            yield from paths(value, schema["properties"][name], f"{path}.{name}".lstrip("."))

    assert set(paths(DEFAULTS, SCHEMA)) == {path for path, _, _ in leaves()}


def test_the_readme_has_the_table_of_all_values(golden: Golden) -> None:
    rows = [f"| `{path}` | `{json.dumps(value)}` | {schema['description']} |\n" for path, schema, value in leaves()]
    table = "".join(["| value | default | meaning |\n", "| --- | --- | --- |\n", *rows])
    before, after = TABLE.split(README.read_text(encoding="utf-8"))
    golden(README, before + table + after)
