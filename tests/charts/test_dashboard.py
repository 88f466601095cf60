"""The Grafana dashboard queries existing metrics, with valid PromQL."""

import importlib.util
import json
import re
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import promql_parser
import pytest

from pdinference.api import names
from pdinference.api.names import Role
from pdinference.api.v1alpha1 import PDInference
from pdinference.loadmetrics.gauges import HELP
from pdinference.manifests import RenderSettings, render
from pdinference.router.record import Metrics
from tests.charts.helm import CHART, WITH_MONITOR, of_kind, only, rendered

DASHBOARD: dict[str, Any] = json.loads((CHART / "dashboards" / "pdinference.json").read_text(encoding="utf-8"))
PANELS: list[dict[str, Any]] = [panel for row in DASHBOARD["panels"] for panel in (row, *row.get("panels", []))]
"""All of them; a collapsed row holds its panels itself."""
QUERIES = [target["expr"] for panel in PANELS for target in panel.get("targets", [])]
REVISION = "[b-df-hj-np-t]{8}"
PODS_ROLE = re.compile(re.escape(f".+-(parameter|decode)-{REVISION}-.+"))


@pytest.mark.parametrize("query", QUERIES)
def test_every_query_is_promql(query: str) -> None:
    promql_parser.parse(query.replace("$__rate_interval", "1m"))


@pytest.mark.parametrize("query", QUERIES)
def test_every_query_is_about_the_chosen_resource(query: str) -> None:
    assert query.count('namespace="$namespace"') == len(re.findall(r"\$name\b", query)) > 0


@pytest.mark.parametrize("query", QUERIES)
def test_no_query_takes_in_a_resource_whose_name_only_begins_alike(query: str) -> None:
    revision = "bcdfghjk"

    def workloads(name: str) -> list[str]:
        return [
            names.revision_object(name, Role.PARAMETER, revision),
            names.revision_object(name, Role.DECODE, revision),
        ]

    def meant(name: str) -> list[str]:
        pods = [f"{workload}-0" for workload in workloads(name)]
        hpas = [f"{name}-parameter", f"{name}-decode"]
        return [*pods, *workloads(name), *hpas, f"{name}-router-6b9f7d5c4-x7z2k"]

    for label, written in re.findall(r'(pod|statefulset|deployment|horizontalpodautoscaler)=~"([^"]+)"', query):
        pattern = re.compile(written.replace("$name", "m"))
        assert any(pattern.fullmatch(name) for name in meant("m")), label
        assert not any(pattern.fullmatch(name) for name in meant("m-decode-x")), label


def test_panels_do_not_overlap_and_have_numbers_of_their_own() -> None:
    cells: set[tuple[int, int]] = set()
    for panel in PANELS:
        at = panel["gridPos"]
        own = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & own, panel["title"]
        assert at["x"] + at["w"] <= 24
        cells |= own
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)


def test_roles_are_read_from_the_names_that_pods_have(resource: Callable[..., PDInference]) -> None:
    (pattern,) = {match for query in QUERIES for match in PODS_ROLE.findall(query)}
    revision = render(resource(), RenderSettings()).revision
    pods = {
        f"{names.revision_object('m', Role.PARAMETER, revision)}-0": "parameter",
        f"{names.revision_object('a-decode-m', Role.DECODE, revision)}-5f6-x7z": "decode",
    }
    for pod, role in pods.items():
        match = re.fullmatch(pattern, pod)
        assert match
        assert match[1] == role


def test_all_revisions_are_written_in_the_letters_that_it_looks_for(resource: Callable[..., PDInference]) -> None:
    found = [render(resource(engine={"image": f"v:{number}"}), RenderSettings()).revision for number in range(20)]
    assert [revision for revision in found if not re.fullmatch(REVISION, revision)] == []
    assert set("".join(found)) == set("bcdfghjklmnpqrst")


def test_gpus_are_a_last_row_that_stays_closed_without_dcgm() -> None:
    (row,) = [panel for panel in PANELS if panel.get("collapsed")]
    assert row == DASHBOARD["panels"][-1]
    assert "optional" in row["title"]
    of_row = {target["expr"] for panel in row["panels"] for target in panel["targets"]}
    assert of_row == {query for query in QUERIES if "DCGM_" in query}
    assert all("dcgm-exporter" in panel["description"] for panel in row["panels"])


@pytest.mark.parametrize("query", [query for query in QUERIES if "DCGM_" in query])
def test_gpus_are_found_by_either_name_of_the_pod_label(query: str) -> None:
    """Prometheus renames the exporter's labels `pod` and `namespace` unless `honorLabels` is set."""
    (metric,) = set(re.findall(r"DCGM_\w+", query))
    honoured, renamed = (
        set(re.findall(rf'{metric}{{{prefix}namespace="\$namespace", {prefix}pod=~"([^"]+)"}}', query))
        for prefix in ("", "exported_")
    )
    assert honoured == renamed == {f"$name-(parameter|decode)-{REVISION}-.+"}


@pytest.mark.vllm
def test_vllm_has_every_metric() -> None:
    found = importlib.util.find_spec("vllm")
    assert found is not None
    assert found.submodule_search_locations
    root = Path(found.submodule_search_locations[0])
    connectors = root / "distributed" / "kv_transfer" / "kv_connector" / "v1"
    files = (
        root / "v1" / "metrics" / "loggers.py",
        connectors / "nixl" / "stats.py",
        connectors / "offloading" / "metrics.py",
        root / "v1" / "kv_offload" / "tiering" / "base.py",
    )
    source = "".join(file.read_text(encoding="utf-8") for file in files)
    metrics = {
        re.sub(r"_(total|sum|bucket|count)$", "", name) for query in QUERIES for name in re.findall(r"vllm:\w+", query)
    }
    assert metrics
    assert not [name for name in metrics if f'"{name}"' not in source]


def test_the_operator_has_every_metric() -> None:
    found = {name for query in QUERIES for name in re.findall(r"pdinference_(?!router_)\w+", query)}
    assert {"pdinference_role_weights_bytes", "pdinference_role_kv_cache_bytes"} <= found <= HELP.keys()


def test_the_router_has_every_metric() -> None:
    families = {family.name for family in Metrics().registry.collect()}
    # Those that appear with the pods and the canary.
    families |= {value.removesuffix("_total") for name, value in vars(names).items() if name.startswith("METRIC_")}
    found = {
        re.sub(r"_(total|bucket)$", "", name)
        for query in QUERIES
        for name in re.findall(r"pdinference_router_\w+", query)
    }
    assert found
    assert found <= families


def test_the_chart_gives_it_to_grafana_as_it_is() -> None:
    assert not [o for o in of_kind(rendered(), "ConfigMap") if o["metadata"]["name"].endswith("-dashboard")]
    configmap = only(rendered(WITH_MONITOR), "ConfigMap", ending="-dashboard")
    assert json.loads(configmap["data"]["pdinference.json"]) == DASHBOARD
    assert configmap["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert configmap["metadata"]["labels"]["team"] == "serving"


def _colours(panel: dict[str, Any], legend: str) -> list[str]:
    """The colours that the overrides of a panel give to a series of this name; the last one holds."""
    return [
        part["value"]["fixedColor"]
        for override in panel["fieldConfig"]["overrides"]
        if re.search(override["matcher"]["options"].strip("/"), legend)
        for part in override["properties"]
        if part["id"] == "color"
    ]


def test_a_role_has_one_colour_in_every_panel() -> None:
    roles = {"parameter": "blue", "decode": "orange"}
    several = [panel for panel in PANELS if any("{role}" in t["legendFormat"] for t in panel.get("targets", []))]
    assert len(several) == 12
    for panel, (role, colour) in product(several, roles.items()):
        for target in panel["targets"]:
            assert _colours(panel, target["legendFormat"].replace("{{role}}", role)) == [colour], panel["title"]
    by_title = {panel["title"]: panel for panel in PANELS}
    assert _colours(by_title["Tokens a second"], "prompt tokens (P)") == ["blue"]
    assert _colours(by_title["Tokens a second"], "generated tokens (D)") == ["orange"]
    assert _colours(by_title["Pods by role"], "decode, ready") == ["orange"]


def test_every_override_is_of_a_series_that_its_panel_has() -> None:
    for panel in PANELS:
        legends = [target["legendFormat"] for target in panel.get("targets", [])]
        for role in ("parameter", "decode"):
            legends += [
                legend.replace("{{role}}", role).replace("{{horizontalpodautoscaler}}", role) for legend in legends
            ]
        for override in panel.get("fieldConfig", {}).get("overrides", []):
            assert override["matcher"]["id"] == "byRegexp"
            pattern = override["matcher"]["options"].strip("/")
            assert any(re.search(pattern, legend) for legend in legends), (panel["title"], pattern)
