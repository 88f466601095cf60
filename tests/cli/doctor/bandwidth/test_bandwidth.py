"""What a measurement says. The pods that report it are not trusted."""

import json
from typing import Any

import pytest

from pdinference.cli.doctor.bandwidth.findings import measured_findings
from pdinference.cli.doctor.bandwidth.measure import BandwidthMeasurement
from pdinference.cli.doctor.bandwidth.outcome import NoResultError, parse
from pdinference.cli.doctor.finding import Finding, FindingResult
from pdinference.cli.doctor.way import TransferWay

SEEN: dict[str, Any] = {
    "memlockBytes": -1,
    "rdmaDevices": ["mlx5_0"],
    "rdmaDeviceFiles": ["uverbs0"],
    "nvidiaDeviceFiles": ["nvidia0"],
    "imexChannels": [],
    "gpus": ["H200"],
    "interfaces": ["eth0"],
    "pidNamespace": "pid:[1]",
    "dns": True,
}


def message(pull: float = 3e9, lanes: tuple[str, ...] = ("tcp/eth0",), right: bool = True, **seen: Any) -> str:
    case = {"atOnce": 1, "first": 1e9, "transfers": 9, "right": right}
    cases = [{**case, "direction": "pull", "speed": pull}, {**case, "direction": "push", "speed": 4e9}]
    return json.dumps({"cases": cases, "lanes": lanes, "parameter": {**SEEN, **seen}, "decode": SEEN})


def found(way: TransferWay, text: str) -> dict[str, Finding]:
    measurement = BandwidthMeasurement(parse(text), {"P": "a", "D": "b"})
    return {finding.subject: finding for finding in measured_findings(way, measurement)}


def problems(way: TransferWay, text: str) -> set[str]:
    return {subject for subject, finding in found(way, text).items() if finding.result is FindingResult.PROBLEM}


def test_speed_and_transports_are_named() -> None:
    findings = found(TransferWay.TCP, message())
    assert "3 GB/s when D pulls, 4 GB/s when P pushes" in findings["bandwidth"].found
    assert "tcp/eth0" in findings["transports"].found
    assert problems(TransferWay.TCP, message()) == set()


@pytest.mark.parametrize(
    ("way", "text", "expected"),
    [
        (TransferWay.TCP, message(pull=0.6e9), {"bandwidth"}),
        (TransferWay.CPU, message(pull=0.6e9), set()),
        (TransferWay.NVLINK, message(pull=60e9, lanes=("cuda_ipc/cuda",)), set()),
        (TransferWay.NVLINK, message(pull=3e9), {"bandwidth"}),
        (TransferWay.RDMA, message(pull=40e9, lanes=("rc_mlx5/mlx5_0:1",)), set()),
        (TransferWay.RDMA, message(pull=3e9, lanes=("rc_mlx5/mlx5_0:1",)), {"bandwidth"}),
        (TransferWay.RDMA, message(pull=40e9), {"transports"}),
        (TransferWay.RDMA, message(40e9, ("rc_mlx5/mlx5_0:1",), memlockBytes=65536), {"pod in the place of P"}),
        (TransferWay.RDMA, message(40e9, ("rc_mlx5/mlx5_0:1",), rdmaDeviceFiles=[]), {"pod in the place of P"}),
        (TransferWay.TCP, message(right=False), {"contents"}),
        (TransferWay.TCP, message(dns=False), {"DNS in the place of P"}),
    ],
)
def test_problems(way: TransferWay, text: str, expected: set[str]) -> None:
    assert problems(way, text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "Traceback: no nixl",
        "[" * 4000,
        json.dumps({"cases": []}),
        message().replace("3000000000.0", "-1.0"),
    ],
)
def test_another_message_is_no_result(text: str) -> None:
    with pytest.raises(NoResultError, match="reported no result"):
        parse(text)


def test_names_of_devices_cannot_write_to_the_terminal() -> None:
    assert parse(message(lanes=("\x1b[2Jtcp/eth0",))).lanes == [" [2Jtcp/eth0"]
