"""`pdinference doctor --bandwidth` on real kubelets: pods like P and D, real NIXL, and nothing left of them."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.conftest import NAME, NAMESPACE, Serving
from e2e.console import say
from e2e.waiting import conditions, wait_until
from pdinference.cli.doctor.bandwidth.jobs import LABEL_RUN

pytestmark = pytest.mark.timeout(1200)


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """A test run in the background ignores SIGINT, and its children would do so, too."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@contextmanager
def doctor(serving: Serving, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """The command as a user of the namespace starts it."""
    program = str(Path(sys.executable).with_name("pdinference"))
    place = ["--kubeconfig", str(serving.cluster.kubeconfig), "-n", NAMESPACE]
    command = [program, "doctor", *words, "--bandwidth", *place]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def left(serving: Serving) -> list[str]:
    """Names of the objects of all runs."""
    found = serving.kubectl.get("pods,jobs,resourceclaimtemplates", "-l", LABEL_RUN)["items"]
    return [f"{item['kind']} {item['metadata']['name']}" for item in found]


def wait_for_no_fault(serving: Serving) -> None:
    """Requests of earlier tests, which killed pods, count for five minutes."""
    wait_until("KVTransfer", lambda: kv_transfer(serving).get("status") in {"True", "Unknown"}, timeout=600)


def kv_transfer(serving: Serving) -> dict[str, Any]:
    """The condition, empty while there is none."""
    found: dict[str, Any] = conditions(serving.resource()).get("KVTransfer", {})
    return found


def reported(serving: Serving, *words: str) -> dict[str, Any]:
    """What it finds. Nothing is left after it."""
    with doctor(serving, *words, "-o", "json") as process:
        output, errors = process.communicate(timeout=600)
    assert output.startswith(b"{"), errors.decode()
    report: dict[str, Any] = json.loads(output)
    problems = [finding for finding in report["findings"] if finding["result"] == "problem"]
    assert not problems
    assert process.returncode == 0
    assert left(serving) == []
    return report


def test_two_pods_measure_the_way_of_the_kv_cache_and_go(serving: Serving) -> None:
    wait_for_no_fault(serving)
    report = reported(serving, NAME)
    bandwidth = report["bandwidth"]
    cases = {(case["direction"], case["atOnce"]): case for case in bandwidth["cases"]}
    assert cases.keys() == {(direction, number) for direction in ("pull", "push") for number in (1, 4)}
    for (direction, number), case in cases.items():
        say(f"{direction}, {number} at once: {case['speed'] / 1e9:.2f} GB/s, first {case['first'] / 1e9:.2f}")
        assert 1e7 < case["speed"] < 1e11, "plausible for TCP on one machine"
        assert case["right"]
    assert bandwidth["lanes"] == ["tcp/eth0"]
    assert bandwidth["parameter"]["pidNamespace"] != bandwidth["decode"]["pidNamespace"]
    assert bandwidth["parameter"]["dns"]
    assert report["load"]["prompts"][0]["promptsPerSecond"] > 0, "the shape of the model is known"


def test_p_and_d_that_would_share_a_pod_are_measured_in_one(serving: Serving, tmp_path: Path) -> None:
    document = serving.example
    document["spec"]["transfer"] = {"path": "HostLocal", "hostLocal": {"parameter": 1, "decode": 2}}
    file = tmp_path / "shared.yaml"
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    bandwidth = reported(serving, "-f", str(file))["bandwidth"]
    assert all(case["right"] and case["speed"] > 1e7 for case in bandwidth["cases"])
    assert bandwidth["parameter"]["pidNamespace"] == bandwidth["decode"]["pidNamespace"]


def test_interrupted_half_way_it_leaves_nothing(serving: Serving) -> None:
    with doctor(serving, NAME) as process:
        wait_until("the pods to exist", lambda: len([one for one in left(serving) if "Pod" in one]) == 2, timeout=300)
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) != 0
    assert left(serving) == []
