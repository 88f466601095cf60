"""The program that measures: what it reads from UCX's log, and two real processes over the loopback interface."""

import json
import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pdinference.api.names import Role
from pdinference.engine.scripts import measure_transfer
from pdinference.engine.scripts.measure_transfer import Settings, accepted, facts, lanes, listening
from pdinference.engine.transfer_measurement import KVShape, measuring_program
from tests.ports import free_port
from tests.waiting import LONG_S, killed_in_the_end, wait_until

RUN = "t"
LOG = """[1] [vm:1:0] parser.c:2587 UCX  INFO  UCX_* env variables: UCX_TLS=all (b/c)
[1] [vm:1:0] ucp_worker.c:1997 UCX  INFO  d inter-node cfg#1 rma_am(tcp/eth0)  am(tcp/eth0 cma/memory)  ka(tcp/eth0)
[1] [vm:1:0] ucp_worker.c:1997 UCX  INFO  decode intra-node cfg#2 rma(cuda_ipc/cuda)  amo(rc_mlx5/mlx5_0:1)
"""


def test_transports_are_read_from_the_log_of_ucx() -> None:
    assert lanes(LOG) == ["cma/memory", "cuda_ipc/cuda", "rc_mlx5/mlx5_0:1", "tcp/eth0"]


def test_a_log_without_them_has_none() -> None:
    assert lanes("") == lanes("UCX  INFO  Version 1.23.0 (loaded from /a/b)") == []


def test_facts_are_those_of_this_process() -> None:
    found = facts(gpu=False)
    assert "lo" in found["interfaces"]
    assert found["pidNamespace"] == str(Path("/proc/self/ns/pid").readlink())


def test_a_result_fits_into_a_termination_message() -> None:
    """The kubelet cuts longer ones off at 4,096 bytes."""
    seen = dict.fromkeys(("rdmaDevices", "rdmaDeviceFiles", "nvidiaDeviceFiles"), ["mlx5_10"] * 8)
    seen |= {"interfaces": ["eth0", "lo"], "gpus": ["NVIDIA H100 80GB HBM3"] * 8, "imexChannels": ["channel0"]}
    pod = {**seen, "memlockBytes": -1, "pidNamespace": "pid:[4026531836]", "dns": True}
    case = {"direction": "pull", "atOnce": 4, "first": 4.1e9 / 3, "speed": 4.1e9 / 3, "transfers": 1000, "right": True}
    result = {"cases": [case] * 4, "lanes": ["rc_mlx5/mlx5_10:1"] * 16, "parameter": pod, "decode": pod}
    assert len(json.dumps(result, separators=(",", ":"))) < 4096


def test_strangers_are_dropped_and_the_pod_of_d_is_not() -> None:
    shape = KVShape(regions=1, block_bytes=1, blocks=1)
    program = measuring_program(shape, token=RUN, port=0, gpu=False, at_once=[1], seconds=1, limit=30)
    with listening(0) as listener, ThreadPoolExecutor(1) as pool:
        answer = pool.submit(accepted, listener, Settings(program[-1]))
        for line in (b'{"token":"guessed"}\n', b"GET / HTTP/1.1\r\n\r\n", b"[]\n"):
            with socket.create_connection(("127.0.0.1", listener.getsockname()[1])) as stranger:
                stranger.sendall(line)
                assert stranger.recv(1) == b""
        with socket.create_connection(("127.0.0.1", listener.getsockname()[1])) as right:
            right.sendall(json.dumps({"token": RUN, "address": 7}).encode() + b"\n")
            assert answer.result(LONG_S)[1]["address"] == 7


def started(folder: Path, name: str, port: int, **given: Any) -> subprocess.Popen[bytes]:
    """The program with files of its own. Its result gets this name."""
    text = Path(measure_transfer.__file__).read_text(encoding="utf-8")
    text = text.replace(measure_transfer.RESULT, f"{folder}/{name}").replace(
        measure_transfer.UCX_LOG, f"{folder}/ucx-{{}}.log"
    )
    shape = KVShape(regions=4, block_bytes=4096, blocks=8)
    program = measuring_program(
        shape, token=RUN, port=port, gpu=False, at_once=[1, 2], seconds=0.1, limit=LONG_S, **given
    )  # fmt: skip
    env = {**os.environ, "UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "lo"}
    return subprocess.Popen([sys.executable, "-I", "-c", text, program[-1]], env=env)


def expect_a_result(file: Path) -> None:
    result = json.loads(file.read_text(encoding="utf-8"))
    assert [(case["direction"], case["atOnce"]) for case in result["cases"]] == [
        ("pull", 1), ("pull", 2), ("push", 1), ("push", 2),
    ]  # fmt: skip
    assert all(case["right"] and case["speed"] > 0 and case["transfers"] > 0 for case in result["cases"])
    assert result["lanes"] == ["tcp/lo"]


@pytest.mark.vllm
def test_two_pods_move_kv_cache(tmp_path: Path) -> None:
    port = free_port()
    d = killed_in_the_end(started(tmp_path, "d", port, peer="127.0.0.1"))
    with d as decode, killed_in_the_end(started(tmp_path, "p", port)) as parameter:
        assert decode.wait(LONG_S) == parameter.wait(LONG_S) == 0
    expect_a_result(tmp_path / "d")


@pytest.mark.vllm
def test_one_container_is_in_the_place_of_both(tmp_path: Path) -> None:
    marks = {role: {"UCX_TCP_TX_SEG_SIZE": size} for role, size in ((Role.PARAMETER, "64k"), (Role.DECODE, "32k"))}
    with killed_in_the_end(started(tmp_path, "both", free_port(), variables=marks)) as both:
        assert both.wait(LONG_S) == 0
    expect_a_result(tmp_path / "both")

    def logs_with(size: str) -> int:
        return sum(f"TX_SEG_SIZE={size}" in log.read_text(encoding="utf-8") for log in tmp_path.glob("ucx-*.log"))

    # No container ends P with D here. UCX's log has P's lines when P has ended.
    wait_until(lambda: logs_with("64k"), "P's log has its own variables")
    assert (logs_with("64k"), logs_with("32k")) == (1, 1)
