"""Draws the Grafana dashboard's panels from its own queries, during a load on the demo: `make recording`.

    uv run python -m e2e.dashboard_picture docs/images/dashboard.png

A real Prometheus scrapes the demo's pods and the operator. Panels without data are left out, and named. Grafana draws
them in its own way.
"""

import json
import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import cycle
from math import isnan, nan
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from urllib.parse import urlsplit

import click
import httpx
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from e2e.cluster import Cluster, build
from e2e.console import headline, say
from e2e.demo import NAME, NAMESPACE, name_option
from e2e.install import OPERATOR_NAMESPACE, REPOSITORY
from e2e.kubectl import Kubectl
from e2e.requests import complete, unseen_prompt
from e2e.waiting import wait_until
from pdinference.api.names import ENGINE_PORT, LABEL_NAME, LABEL_ROLE, ROUTER_STATE_PORT, Role

_DASHBOARD: Final = REPOSITORY / "charts" / "pdinference-operator" / "dashboards" / "pdinference.json"
_PORTS: Final = {Role.PARAMETER: ENGINE_PORT, Role.DECODE: ENGINE_PORT, Role.ROUTER: ROUTER_STATE_PORT}
_SCRAPED_S: Final = 1
_RATES_OVER: Final = "10s"
_CLIENTS: Final = (1, 4, 8, 2)
"""Clients at a time, one stage after the other."""
_STAGE_S: Final = 30
_REPEATS: Final = 60
_ANSWER_TOKENS: Final = 120
_COLUMNS: Final = 3
_COLORS: Final = {"parameter": "#5794f2", "decode": "#ff9830"}
_OTHER_COLORS: Final = ("#73bf69", "#f2495c", "#b877d9", "#fade2a", "#8ab8ff", "#ffb357")
_LABEL: Final = re.compile(r"\{\{(\w+)\}\}")


@dataclass
class Panel:
    """A panel with its curves: seconds and values by the words of the legend."""

    title: str
    unit: str
    curves: dict[str, tuple[list[float], list[float]]] = field(default_factory=dict)


@click.command()
@click.argument("picture", type=click.Path(dir_okay=False, path_type=Path))
@name_option
def main(picture: Path, name: str) -> None:
    """Put load on the demo's model, and draw what the dashboard's queries give."""
    kubeconfig = Cluster.find(name).kubeconfig
    kubectl = Kubectl(kubeconfig, NAMESPACE)
    build.prepare(["prometheus"])
    with TemporaryDirectory() as folder, ExitStack() as stack:
        targets = list(_targets(kubectl, Kubectl(kubeconfig, OPERATOR_NAMESPACE), stack))
        url = stack.enter_context(_prometheus(Path(folder), targets))
        wait_until("Prometheus to scrape all targets", lambda: _number(url, "sum(up)") == len(targets))
        began = time.time()
        _load(kubectl)
        panels = list(_panels(url, began, time.time()))
    draw([panel for panel in panels if panel.curves], picture)
    say("Without data here: " + "; ".join(panel.title for panel in panels if not panel.curves))


def _targets(kubectl: Kubectl, system: Kubectl, stack: ExitStack) -> Iterator[dict[str, Any]]:
    """Each pod behind a port of this machine, with the labels that a PodMonitor gives to its metrics."""
    for pod in kubectl.get("pods", f"-l{LABEL_NAME}={NAME}")["items"]:
        port = _PORTS[Role(pod["metadata"]["labels"][LABEL_ROLE])]
        yield _target(kubectl, pod["metadata"]["name"], port, stack)
    for pod in system.get("pods", "-lapp.kubernetes.io/name=pdinference-operator")["items"]:
        ports = {port["name"]: port["containerPort"] for port in pod["spec"]["containers"][0]["ports"]}
        yield _target(system, pod["metadata"]["name"], ports["http"], stack)


def _target(kubectl: Kubectl, pod: str, port: int, stack: ExitStack) -> dict[str, Any]:
    url = stack.enter_context(kubectl.port_forward(f"pod/{pod}", port))
    return {"targets": [urlsplit(url).netloc], "labels": {"namespace": kubectl.namespace, "pod": pod}}


@contextmanager
def _prometheus(folder: Path, targets: list[dict[str, Any]]) -> Iterator[str]:
    config = folder / "prometheus.json"
    scrapes = {"job_name": "pods", "scrape_interval": f"{_SCRAPED_S}s", "static_configs": targets}
    config.write_text(json.dumps({"scrape_configs": [{**scrapes, "scrape_timeout": f"{_SCRAPED_S}s"}]}))
    address = "127.0.0.1:19090"
    line = [str(build.binary("prometheus")), f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([*line, f"--web.listen-address={address}"], stdout=log, stderr=log)
    try:
        yield f"http://{address}"
    finally:
        process.terminate()
        process.wait()


def _number(url: str, query: str) -> float:
    """The number that a query gives; NaN without one."""
    try:
        found = httpx.get(f"{url}/api/v1/query", params={"query": query}).json()["data"]["result"]
    except httpx.TransportError:
        return nan
    return float(found[0]["value"][1]) if found else nan


def _load(kubectl: Kubectl) -> None:
    with kubectl.port_forward(f"service/{NAME}", 80) as url:
        for clients in _CLIENTS:
            headline(f"{clients} clients for {_STAGE_S} s")
            end = time.monotonic() + _STAGE_S
            with ThreadPoolExecutor(clients) as pool:
                for each in [pool.submit(_client, url, end) for _ in range(clients)]:
                    each.result()


def _client(url: str, end: float) -> None:
    while time.monotonic() < end:
        complete(url, NAME, unseen_prompt(_REPEATS), _ANSWER_TOKENS, ignore_eos=True)


def _panels(url: str, began: float, ended: float) -> Iterator[Panel]:
    for panel in json.loads(_DASHBOARD.read_text(encoding="utf-8"))["panels"]:
        if "targets" in panel:
            found = Panel(panel["title"], panel["fieldConfig"]["defaults"].get("unit", ""))
            for target in panel["targets"]:
                found.curves |= dict(_curves(url, target, began, ended))
            yield found


def _curves(
    url: str, target: Mapping[str, str], began: float, ended: float
) -> Iterator[tuple[str, tuple[list[float], list[float]]]]:
    """The curves of a query with any data."""
    variables = {"$namespace": NAMESPACE, "$name": NAME, "$__rate_interval": _RATES_OVER}
    query = re.sub(r"\$(namespace|name|__rate_interval)\b", lambda found: variables[found[0]], target["expr"])
    asked: dict[str, str | float] = {"query": query, "start": began, "end": ended, "step": _SCRAPED_S}
    answer = httpx.get(f"{url}/api/v1/query_range", params=asked).raise_for_status().json()
    for one in answer["data"]["result"]:
        words = _legend(target["legendFormat"], one["metric"])
        times, values = ([float(value[at]) for value in one["values"]] for at in (0, 1))
        if not all(map(isnan, values)):
            yield words, ([at - began for at in times], values)


def _legend(text: str, labels: Mapping[str, str]) -> str:
    return _LABEL.sub(lambda found: labels.get(found[1], ""), text)


def draw(panels: list[Panel], picture: Path) -> None:
    """Draw panels, three in a row."""
    rows = -(-len(panels) // _COLUMNS)
    with style.context("dark_background"):
        figure = Figure(figsize=(15, 2.6 * rows), layout="constrained", facecolor="#111217")
        for axes, panel in zip(figure.subplots(rows, _COLUMNS, squeeze=False).flat, panels, strict=False):
            _draw(axes, panel)
        for axes in figure.axes[len(panels) :]:
            axes.remove()
        figure.savefig(picture, dpi=80)


def _draw(axes: Axes, panel: Panel) -> None:
    others = cycle(_OTHER_COLORS)
    axes.set_facecolor("#181b1f")
    axes.set_title(panel.title, loc="left", fontsize=10)
    for words, (seconds, values) in panel.curves.items():
        role = next((role for role in _COLORS if role in words), None)
        line = ":" if words.endswith(("weights", "99 %", "p99")) else "-"
        axes.plot(seconds, values, line, label=words, color=_COLORS[role] if role else next(others), linewidth=1.5)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _written(value, panel.unit)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f} s"))
    axes.set_ylim(bottom=0)
    axes.tick_params(labelsize=8)
    axes.grid(color="#2c3235", linewidth=0.5)
    axes.legend(fontsize=7, loc="upper left", framealpha=0.4)


def _written(value: float, unit: str) -> str:
    if unit == "percentunit":
        return f"{100 * value:.0f} %"
    if unit == "s":
        return f"{1000 * value:.0f} ms"
    if unit in {"bytes", "Bps"}:
        return f"{value / 1e6:.1f} MB" + ("/s" if unit == "Bps" else "")
    return f"{value:g}"


if __name__ == "__main__":
    main()
