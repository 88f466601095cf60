"""Compiled code that outlives pods, with real vLLM: kept, torn, made anew, and found by pods that start later."""

import copy
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.conftest import Serving
from e2e.install import apply, remove_at_once
from e2e.requests import complete
from e2e.volumes import shared_folder
from e2e.waiting import wait_ready, wait_until
from pdinference.api.names import ENGINE_CONTAINER, LABEL_NAME, LABEL_ROLE, Role

pytestmark = pytest.mark.timeout(2400)

NAME = "compiled"
CLAIM = "code"


@pytest.fixture(scope="module")
def folder(serving: Serving) -> Iterator[Path]:
    """The tiny model, one D pod without P, and the folder behind the claim.

    Without a GPU, what vLLM keeps is what it has found out about the model's class, in a process that takes seconds.
    The image brings that for Llama, so the tiny model is taken for a Mistral, which has the same layers.
    """
    document = copy.deepcopy(serving.example)
    document["metadata"]["name"] = NAME
    document["spec"]["mode"] = "Aggregated"
    document["spec"]["engine"]["compileCache"] = {"persistentVolumeClaim": {"claimName": CLAIM}}
    document["spec"]["engine"]["args"] = {"hf-overrides": {"architectures": ["MistralForCausalLM"]}}
    document["spec"]["decode"]["resources"]["requests"]["cpu"] = "100m"  # beside the tiny pair
    with shared_folder(serving.kubectl, CLAIM) as folder:
        apply(serving.kubectl, document)
        wait_ready(serving.kubectl, NAME)
        yield folder
        remove_at_once(serving.kubectl, NAME)


def pods(serving: Serving) -> list[str]:
    """D pods that stay."""
    found = serving.kubectl.get("pods", "-l", f"{LABEL_NAME}={NAME},{LABEL_ROLE}={Role.DECODE}")["items"]
    return [pod["metadata"]["name"] for pod in found if "deletionTimestamp" not in pod["metadata"]]


def says(serving: Serving, pod: str, text: str) -> str:
    """Wait until vLLM's container has written a line, and return it."""

    def line() -> str:
        log = serving.kubectl.run("logs", pod, "-c", ENGINE_CONTAINER, "--ignore-errors")
        return next((each for each in log.splitlines() if text in each), "")

    return wait_until(f"{pod} to say {text!r}", line, timeout=240)


def archive(folder: Path) -> Path:
    """The only one, complete."""
    (found,) = folder.iterdir()
    assert found.suffix == ".archive"
    return found


def answer(serving: Serving) -> str:
    with serving.kubectl.port_forward(f"service/{NAME}", 80) as url:
        return complete(url, NAME, "Once upon a time", 16, ignore_eos=True).text


def test_a_torn_archive_is_made_anew_and_two_pods_find_it_at_once(serving: Serving, folder: Path) -> None:
    (first,) = pods(serving)
    says(serving, first, "there is no archive for this engine yet")
    says(serving, first, "Compile cache: kept")
    before = answer(serving)
    torn = archive(folder)
    torn.write_bytes(torn.read_bytes()[:-1000])

    serving.kubectl.run("delete", "pod", first, "--wait=false")
    (second,) = wait_until("another pod", lambda: [pod for pod in pods(serving) if pod != first], timeout=60)
    says(serving, second, "is not whole")
    says(serving, second, "Compile cache: kept")
    assert answer(serving) == before
    made = archive(folder)

    serving.kubectl.run("patch", "pdi", NAME, "--type=merge", "-p", '{"spec":{"decode":{"replicas":3}}}')
    wait_until("three pods", lambda: len(pods(serving)) == 3, timeout=60)
    for pod in set(pods(serving)) - {second}:
        assert made.stem[-64:][:12] in says(serving, pod, "Compile cache: restored")
    wait_ready(serving.kubectl, NAME)
    assert answer(serving) == before
