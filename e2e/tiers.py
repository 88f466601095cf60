"""The proof that KV cache went to tiers and came back: what vLLM itself counted, and the files."""

from dataclasses import dataclass, fields
from typing import Self

from e2e.kubectl import Kubectl
from e2e.transfer import counters
from pdinference.api.names import DISK_TIER_CONTAINER, LABEL_NAME, LABEL_ROLE, Role
from pdinference.engine.kv_tiers import DISK_TIER_MOUNT

_COUNT = "import os; print(sum(os.path.getsize(os.path.join(d, n)) for d, _, f in os.walk({folder!r}) for n in f))"


@dataclass(frozen=True)
class Tiers:
    """Counters of one role since its pods started, summed over pods.

    Attributes:
        stored: Bytes of KV cache copied from vLLM's own cache to the CPU tier.
        loaded: Bytes copied back.
        written: Bytes that went on from the CPU tier to disk.
        read: Bytes that came from disk to the CPU tier.
        computed: Prompt tokens whose KV cache was computed here.
        preemptions: Requests that lost their KV cache to others.
    """

    stored: float = 0
    loaded: float = 0
    written: float = 0
    read: float = 0
    computed: float = 0
    preemptions: float = 0

    def __sub__(self, earlier: Self) -> "Tiers":
        """What happened since `earlier`."""
        return Tiers(**{f.name: getattr(self, f.name) - getattr(earlier, f.name) for f in fields(self)})


def tiers(kubectl: Kubectl, name: str, role: Role) -> Tiers:
    """Read the counters of a role's pods."""
    found = counters(kubectl, name, role)
    return Tiers(
        stored=found.get("vllm:kv_offload_store_bytes_total", 0),
        loaded=found.get("vllm:kv_offload_load_bytes_total", 0),
        written=found.get("vllm:kv_offload_tiering_write_bytes_total", 0),
        read=found.get("vllm:kv_offload_tiering_read_bytes_total", 0),
        computed=found.get("vllm:prompt_tokens_by_source_total{local_compute}", 0),
        preemptions=found.get("vllm:num_preemptions_total", 0),
    )


def bytes_on_disk(kubectl: Kubectl, name: str, role: Role) -> int:
    """Size of the files of a role's disk tier, in its one pod."""
    selector = f"{LABEL_NAME}={name},{LABEL_ROLE}={role}"
    (pod,) = kubectl.get("pods", "-l", selector, "--field-selector=status.phase=Running")["items"]
    script = _COUNT.format(folder=DISK_TIER_MOUNT)
    exec_ = ("exec", pod["metadata"]["name"], "-c", DISK_TIER_CONTAINER, "--", "python3", "-c", script)
    return int(kubectl.run(*exec_))
