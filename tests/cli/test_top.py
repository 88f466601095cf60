"""`pdinference top`: metrics that vLLM gave once, through port-forwards over HTTP."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest
from aiohttp import web
from rich.console import Console

from pdinference.api.names import Role
from pdinference.api.v1alpha1.status import RoleMemory
from pdinference.cli import watching
from pdinference.cli.top import command
from pdinference.cli.top.text import curve, table, view
from pdinference.cli.top.usage import EngineUse, Tiers, engine_use
from pdinference.cluster.client import ApiServer, load_configuration
from tests.cli.served_cluster import NAMESPACE, ServedCluster, pod, resource, stranger
from tests.cli.terminal import as_terminal
from tests.conftest import REPOSITORY
from tests.http_server import served as http_served

BUSY = (REPOSITORY / "tests" / "loadmetrics" / "recorded" / "decode-busy.txt").read_bytes()
PLAN = {"weightsBytes": 15 * 2**30, "kvBytesPerToken": 2**17, "kvCapacityTokens": 2**18}
TIERS = b"""
vllm:kv_offload_store_bytes_total{engine="0"} 8.4e+07
vllm:kv_offload_load_bytes_total{engine="0"} 1e+07
vllm:kv_offload_tiering_write_bytes_total{engine="0",tier="1:fs"} 8.4e+07
vllm:kv_offload_tiering_write_bytes_total{engine="1",tier="1:fs"} 1e+06
vllm:kv_offload_tiering_read_bytes_total{engine="0",tier="1:fs"} NaN
"""


class Engine:
    """What listens in the pods."""

    page = BUSY

    def __init__(self) -> None:
        self.asked = 0
        self.asked_often = asyncio.Event()

    async def metrics(self, _request: web.Request) -> web.Response:
        self.asked += 1
        if self.asked == 7:  # both engines three times, and the first again
            self.asked_often.set()
        return web.Response(body=self.page)


class Served(NamedTuple):
    cluster: ServedCluster
    engine: Engine


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    cluster, engine = ServedCluster(), Engine()
    cluster.resources[0]["status"]["plan"] = {"decode": PLAN}
    cluster.pods = [pod("decode", "d-0"), pod("parameter", "p-0"), pod("router", "r-0")]
    cluster.pods += [stranger("decode", "s-0"), stranger("parameter", "s-1")]
    async with http_served([web.get("/metrics", engine.metrics)]) as cluster.pod_port, cluster.running(tmp_path):
        yield Served(cluster, engine)


async def test_each_engine_has_its_memory_and_load(served: Served) -> None:
    found = await served.cluster.run("top", "llama", "-o", "json")
    assert found.exit_code == 0, found.output
    parameter, decode = json.loads(found.stdout)["engines"]
    assert (parameter["role"], parameter["engine"], parameter["weights_bytes"]) == ("parameter", "p-0", None)
    assert (decode["role"], decode["engine"], decode["weights_bytes"]) == ("decode", "d-0", 15 * 2**30)
    assert decode["kv_bytes"] == 2**35
    assert 0 < decode["kv_used"] < 1
    assert decode["running"] > 0


async def test_off_a_terminal_the_present_state_is_printed(served: Served) -> None:
    served.cluster.pods[0]["status"]["conditions"] = []
    found = await served.cluster.run("top")
    assert found.exit_code == 0, found.output
    header, parameter, decode = found.stdout.splitlines()
    assert header.split()[:2] == ["ROLE", "ENGINE"]
    assert parameter.split()[:2] == ["P", "p-0"]
    assert "tokens" in parameter
    assert decode.split()[:5] == ["D", "d-0", "-", "not", "ready"]


async def test_an_engine_without_metrics_does_not_hide_the_others(served: Served) -> None:
    served.engine.page = b"vllm:num_requests_running{ 1\n"
    problems = [one["problem"] for one in json.loads((await served.cluster.run("top", "-o", "json")).stdout)["engines"]]
    assert all(problems)
    served.cluster.forward_refusal = 403
    found = json.loads((await served.cluster.run("top", "-o", "json")).stdout)
    assert "You need the right to `get` and `create` the resource pods/portforward." in found["engines"][0]["problem"]


async def test_without_pods_of_p_and_d_status_is_named(served: Served) -> None:
    served.cluster.pods = [pod("router", "r-0")]
    found = await served.cluster.run("top")
    assert found.output == "Error: llama has no pods of P or D. `kubectl pdi status llama` says why.\n"
    served.cluster.resources = [resource(), resource("qwen")]
    assert "Write the NAME of one." in (await served.cluster.run("top")).output


async def test_on_a_terminal_the_kv_cache_is_shown_over_time(
    served: Served, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    as_terminal(monkeypatch, width=160)
    monkeypatch.setattr(watching, "_SECONDS", 0)
    api = ApiServer(await load_configuration(served.cluster.kubeconfig))
    looking = asyncio.create_task(command._keep_live(api, NAMESPACE, None))
    await served.engine.asked_often.wait()
    looking.cancel()
    await asyncio.gather(looking, return_exceptions=True)
    await api.close()
    used = engine_use(Role.DECODE, "d-0", BUSY, None).kv_used
    assert used is not None
    printed = capsys.readouterr().out
    assert "KV CACHE OVER TIME" in printed
    assert curve([used] * 3) in printed


async def test_on_a_terminal_an_api_server_that_rests_does_not_end_it(
    served: Served, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    as_terminal(monkeypatch, width=160)
    monkeypatch.setattr(watching, "_SECONDS", 0)
    served.cluster.rests = 1
    api = ApiServer(await load_configuration(served.cluster.kubeconfig))
    looking = asyncio.create_task(command._keep_live(api, NAMESPACE, None))
    await asyncio.wait(
        (looking, asyncio.create_task(served.engine.asked_often.wait())), return_when=asyncio.FIRST_COMPLETED
    )
    looking.cancel()
    await asyncio.gather(looking, return_exceptions=True)
    await api.close()
    printed = capsys.readouterr().out
    assert "the server rests. Trying again" in printed
    assert "KV CACHE OVER TIME" in printed


def test_bytes_of_tiers_are_summed_over_engines() -> None:
    found = engine_use(Role.DECODE, "d-0", BUSY + TIERS, None)
    assert found.tiers == Tiers(cpu_written=84e6, cpu_read=10e6, disk_written=85e6)
    assert engine_use(Role.DECODE, "d-0", BUSY, None).tiers is None
    console = Console(width=160)
    with console.capture() as captured:
        console.print(table([found], {}))
    assert "84 MB in, 10 out" in captured.get()
    assert "85 MB in, 0 out" in captured.get()


@pytest.mark.parametrize("width", [60, 80, 120, 240])
def test_names_and_numbers_are_whole_at_any_width(width: int) -> None:
    name = "llama-decode-ctfbcsls-7dc597568c-55rtf"
    page = BUSY + TIERS
    engines = [
        engine_use(Role.DECODE, name, page, RoleMemory.model_validate(PLAN)),
        EngineUse(Role.PARAMETER, "llama-parameter-ctfbcsls-0", problem="not ready"),
    ]
    console = Console(width=width)
    with console.capture() as captured:
        console.print(view(console, engines, {name: [0.5] * 30}))
    lines = captured.get().splitlines()
    assert all(len(line.rstrip()) <= width for line in lines)
    assert any(name in line for line in lines)
    assert any("84 MB in, 10 out" in line for line in lines)
    assert any("of 32.0 GiB" in line for line in lines) or width < 80
    assert any(curve([0.5] * 30) in line for line in lines)
    assert any("not ready" in line for line in lines)


def test_a_curve_rises_and_falls_with_its_values() -> None:
    assert curve([0, 0.5, 1, 0.25]) == " ▄█▂"


def test_a_full_kv_cache_is_shown_with_its_size() -> None:
    engine = EngineUse(Role.DECODE, "d-0", kv_bytes=40 * 2**30, kv_used=0.95)
    console = Console(width=160)
    with console.capture() as captured:
        console.print(table([engine], {}))
    assert "███████████████████░  95% 38.0 of 40.0 GiB" in captured.get()


def test_sizes_below_a_gibibyte_are_in_mebibytes() -> None:
    engine = EngineUse(Role.DECODE, "d-0", weights_bytes=50 * 2**20, kv_bytes=64 * 2**20, kv_used=0.5)
    console = Console(width=160)
    with console.capture() as captured:
        console.print(table([engine], {}))
    printed = captured.get()
    assert "50 MiB" in printed
    assert "32 of 64 MiB" in printed
