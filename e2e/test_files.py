"""KV cache through files: P and D on different nodes, with nothing but a volume between them."""

import copy
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from e2e.conftest import Serving
from e2e.install import apply, remove_at_once
from e2e.nodes import HOSTNAME, alone, ask, hosts
from e2e.requests import complete
from e2e.transfer import BLOCK, transfer
from e2e.volumes import shared_folder
from e2e.waiting import wait_ready

pytestmark = pytest.mark.timeout(2400)

NAME = "files"
CLAIM = "kv"


@pytest.fixture(scope="module")
def folder(serving: Serving) -> Iterator[Path]:
    """The tiny model, P on one node and D on another, and the folder behind the claim."""
    document = copy.deepcopy(serving.example)
    document["metadata"]["name"] = NAME
    document["spec"]["transfer"] = {"connector": "SharedStorage", "sharedStorage": {"claimName": CLAIM}}
    for role, host in zip(("parameter", "decode"), hosts(serving), strict=True):
        document["spec"][role]["placement"] = {"nodeSelector": {HOSTNAME: host}}
        document["spec"][role]["resources"]["requests"]["cpu"] = "100m"  # beside the tiny pair
    with shared_folder(serving.kubectl, CLAIM) as folder:
        apply(serving.kubectl, document)
        wait_ready(serving.kubectl, NAME)
        yield folder
        remove_at_once(serving.kubectl, NAME)


def prompt(length: int) -> str:
    """Text that shares no beginning with any other, a token for each character."""
    return f"{uuid.uuid4().hex} goes through a file. ".ljust(length, "x")[:length]


def whole(text: str) -> int:
    """Tokens in blocks that a prompt fills; a token has to be left to compute."""
    return (len(text) - 1) // BLOCK * BLOCK


def test_d_reads_what_p_wrote_and_the_answers_are_the_same(serving: Serving, folder: Path) -> None:
    prompts = [prompt(length) for length in (100, 257, 300, 900)]
    before = transfer(serving.kubectl, NAME)
    with serving.kubectl.port_forward(f"service/{NAME}", 80) as url, ThreadPoolExecutor(len(prompts)) as clients:
        answers = list(clients.map(lambda text: complete(url, NAME, text, 16, ignore_eos=True).text, prompts))
    moved = transfer(serving.kubectl, NAME) - before
    assert answers == [alone(serving, text) for text in prompts]
    assert moved.computed_on_parameter == moved.queried_on_decode == sum(map(len, prompts))
    assert moved.moved_to_decode == sum(map(whole, prompts))
    assert moved.computed_on_decode == sum(map(len, prompts)) - moved.moved_to_decode


def test_a_file_that_is_lost_costs_time_and_no_answer(serving: Serving, folder: Path) -> None:
    text = prompt(300)
    first, _ = ask(serving, NAME, text)
    for file in folder.rglob("*layers.1.*"):
        file.unlink()
    second, computed = ask(serving, NAME, text)
    third, moved = ask(serving, NAME, text)
    assert first.text == second.text == third.text
    assert (computed.moved_to_decode, computed.computed_on_decode) == (0, len(text))
    assert moved.moved_to_decode == whole(text), "what was lost has been written anew"
