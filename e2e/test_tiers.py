"""Tiers of the KV cache on real parts: memory and disk fill, and what is there comes back and is not computed again."""

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from e2e.conftest import Serving
from e2e.install import REPOSITORY, apply, example
from e2e.requests import complete
from e2e.tiers import Tiers, bytes_on_disk, tiers
from e2e.transfer import transfer
from e2e.waiting import wait_ready, wait_until
from pdinference.api.names import LABEL_NAME, LABEL_ROLE, Role

pytestmark = pytest.mark.timeout(2400)

EXAMPLE: Path = REPOSITORY / "examples" / "cpu-decode-disk-tier.yaml"
NAME = "tiny-tiers"
BLOCKS = 20
"""In vLLM's own KV cache: one prompt of the longest length, and little more."""
BLOCK_BYTES = 2**19
"""Of the tiny model: 128 tokens x 4 layers x 2 (K and V) x 2 heads x 64 elements x 4 bytes."""
DISK = 32 * 2**20


@pytest.fixture(scope="module")
def url(serving: Serving) -> Iterator[str]:
    """The example with caches so small that they overflow, reached through its router."""
    document = example(serving.images, EXAMPLE)
    document["spec"]["engine"]["args"] = {"num-gpu-blocks-override": BLOCKS}
    for role in ("parameter", "decode"):
        document["spec"][role]["kvTiers"] = {"cpu": {"size": "4Mi"}, "disk": {"size": str(DISK)}}
    apply(serving.kubectl, document)
    try:
        wait_ready(serving.kubectl, NAME)
        with serving.kubectl.port_forward(f"service/{NAME}", 80) as address:
            yield address
    finally:
        serving.kubectl.run("delete", "pdi", NAME, "--ignore-not-found", "--wait=false")


def prompts(count: int, length: int) -> list[str]:
    """Prompts that share no beginning with any other, a token for each character."""
    return [(f"{uuid.uuid4().hex} tells a long story. " * 40)[:length] for _ in range(count)]


def answer(url: str, prompt: str, max_tokens: int) -> str:
    return complete(url, NAME, prompt, max_tokens, ignore_eos=True).text


def test_p_reads_prompts_back_from_disk_and_the_answers_are_the_same(serving: Serving, url: str) -> None:
    asked = prompts(4, 1100)  # 8 blocks each, so that the caches of device and memory hold the last one or two
    first = [answer(url, prompt, 8) for prompt in asked]
    kept = wait_until("P to write the prompts to disk", lambda: _written(serving, 4 * 8), timeout=300)

    second = [answer(url, prompt, 8) for prompt in asked]
    again = _since(serving, kept)
    assert second == first
    assert again.loaded >= 3 * 8 * BLOCK_BYTES, "at most one prompt can have been in vLLM's own cache"
    assert again.read >= 2 * 8 * BLOCK_BYTES, "memory holds 8 blocks, so the rest came from disk"
    assert again.computed < 2 * 1100, "what was read back was not computed again"


def test_what_d_generated_comes_back_after_requests_made_room_for_others(serving: Serving, url: str) -> None:
    asked = prompts(6, 300)
    alone = [answer(url, prompt, 400) for prompt in asked]
    before, moved = tiers(serving.kubectl, NAME, Role.DECODE), transfer(serving.kubectl, NAME)

    with ThreadPoolExecutor(len(asked)) as clients:
        together = list(clients.map(lambda prompt: answer(url, prompt, 400), asked))
    after = tiers(serving.kubectl, NAME, Role.DECODE) - before
    assert together == alone
    assert after.preemptions > 0, "six requests need more blocks than there are"
    assert after.loaded > 0, "what they had generated came back from the tiers"
    assert (transfer(serving.kubectl, NAME) - moved).failed == 0


def test_the_disk_tier_stays_within_its_size(serving: Serving, url: str) -> None:
    before = tiers(serving.kubectl, NAME, Role.PARAMETER)
    for prompt in prompts(DISK // BLOCK_BYTES // 8 + 2, 1100):
        answer(url, prompt, 1)
    wait_until("P to write more than fits", lambda: _since(serving, before).written > DISK, timeout=300)
    wait_until("the oldest files to go", lambda: DISK // 2 < _on_disk(serving) <= 0.9 * DISK, timeout=300)
    pods = serving.kubectl.get("pods", "-l", f"{LABEL_NAME}={NAME},{LABEL_ROLE}!=router")["items"]
    assert [container["restartCount"] for pod in pods for container in pod["status"]["containerStatuses"]] == [0, 0]


def _since(serving: Serving, before: Tiers) -> Tiers:
    return tiers(serving.kubectl, NAME, Role.PARAMETER) - before


def _written(serving: Serving, blocks: int) -> Tiers | None:
    found = tiers(serving.kubectl, NAME, Role.PARAMETER)
    return found if found.written >= blocks * BLOCK_BYTES else None


def _on_disk(serving: Serving) -> int:
    return bytes_on_disk(serving.kubectl, NAME, Role.PARAMETER)
