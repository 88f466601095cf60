"""The seconds of one step of an engine: a roofline with calibrated shares, and what kernels and requests add."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from pdinference.performance.calibration import Calibration
from pdinference.performance.devices import Device
from pdinference.performance.work import Work

_LARGEST_GRAPH: Final = 512
"""Tokens (`max_cudagraph_capture_size` in vllm/config/compilation.py)."""
_LAUNCH_OF_EXPERTS: Final = 2.6
"""How much longer a CPU takes to start the kernels of a layer with routed experts: 1.3 ms against 0.5 in a dense one
(vLLM 0.26.0 on an H200, steps of 1,000 to 4,000 tokens of Qwen3-30B-A3B's and Llama-3.2-1B's shapes)."""

_COMPUTE_OF_EXPERTS: Final = 0.62
"""Share of the speed of dense products that grouped products of routed experts reach (`fused_moe`)."""
_LAYER_OF_EXPERTS: Final = 1.67
"""How much longer the kernels of a layer with routed experts take beside its products, in steps without prompts: the
choice of experts and the sorting of tokens by expert are kernels of their own.

Both, and `_LAUNCH_OF_EXPERTS`: with them, the times of steps of Qwen3-30B-A3B's shape and of dense ones, which
`pdinference calibrate` measured, give the same calibration (benchmarks/on_gpu/measured/*.raw). No load was used.
"""

_DESCRIPTOR: Final = 2.6e-6
"""Seconds in which D posts the transfer of one layer of one block (`start_load_kv` in vLLM's nixl/pull_worker.py), from
transfers of 50 to 4,000 of them between two H200s (benchmarks/results/adaptive.md)."""


def padded(tokens: int) -> int:
    """Tokens of the smallest CUDA graph that a step of `tokens` fits in; `tokens` itself if no graph is large enough.

    Source: `_set_cudagraph_sizes` in vllm/config/vllm.py.
    """
    if tokens > _LARGEST_GRAPH:
        return tokens
    if tokens <= 4:
        return min(size for size in (1, 2, 4) if size >= tokens)
    each = 8 if tokens <= 256 else 16
    return -(-tokens // each) * each


@dataclass(frozen=True)
class StepModel:
    """How long a step takes on one rank; all ranks of an instance take the same.

    Matrix products are bound by the larger of computing and reading weights; attention of prompts computes, attention
    of running requests reads KV cache. Roofline: Williams et al., CACM 52(4), 2009.

    Attributes:
        work: Operations and bytes.
        device: Peak rates.
        calibration: Shares of them.
    """

    work: Work
    device: Device
    calibration: Calibration

    @cached_property
    def _peak(self) -> float:
        return self.device.flops8 if self.work.low_precision else self.device.flops

    @cached_property
    def _compute(self) -> float:
        return self.calibration.compute8 if self.work.low_precision else self.calibration.compute

    @cached_property
    def _quantise(self) -> float:
        """Seconds of a step for quantising the activations of all layers."""
        return self.work.layers * self.calibration.layer8 if self.work.low_precision else 0.0

    @cached_property
    def _weights_rate(self) -> float:
        return self.device.bandwidth * self.calibration.weights

    @cached_property
    def _kv_rate(self) -> float:
        share = self.calibration.kv8 if self.work.kv8 else self.calibration.kv
        return self.device.bandwidth * share

    @cached_property
    def kv_token(self) -> float:
        """Seconds that a running request adds to a step for each token of its context, in layers without a window."""
        return self.work.kv_bytes / self._kv_rate

    @cached_property
    def window_token(self) -> float:
        """The same in layers with a sliding window, for each token within it."""
        return self.work.window_kv_bytes / self._kv_rate

    @cached_property
    def _each(self) -> float:
        """Seconds of a step for each running request, whatever its length."""
        return self.calibration.request + 2 * self.work.state_bytes / self._kv_rate

    def _products(self, tokens: int, sampled: int, share: float) -> float:
        """Seconds of all matrix products of a step, at a share of the peak."""
        work = self.work
        compute = (tokens * work.flops + sampled * work.head_flops) / (self._peak * share)
        dense = max(compute, work.dense_bytes / self._weights_rate)
        return dense + self._experts(tokens, share) if work.experts else dense

    def _experts(self, tokens: int, share: float) -> float:
        """Seconds of the products of routed experts. Of their weights a step reads those that some token uses.

        All experts are as likely. The tokens that fill up a CUDA graph use experts like others.
        """
        work = self.work
        unused = (1 - work.experts_per_token / work.experts) ** padded(tokens)
        compute = tokens * work.expert_flops / (self._peak * share * _COMPUTE_OF_EXPERTS)
        return max(compute, work.expert_bytes * (1 - unused) / self._weights_rate)

    def _reduce(self, tokens: int) -> float:
        """Seconds of sums over tensor-parallel ranks: a ring moves 2 (n - 1) / n of the bytes."""
        work = self.work
        if not work.reductions:
            return 0.0
        moved = 2 * (work.ranks - 1) / work.ranks * work.reduced_bytes * tokens
        return work.reductions * self.calibration.reduction + moved / (self.device.links * self.calibration.links)

    def decode(self, running: int) -> float:
        """Seconds of a step with a token of each running request, without reading their KV cache."""
        of = self.calibration
        return (
            of.step + self._layers + self._quantise + running * self._each
            + self._products(running, running, of.decode_compute) + self._reduce(running)
        )  # fmt: skip

    @cached_property
    def _layers(self) -> float:
        return self.work.layers * self.calibration.layer * (_LAYER_OF_EXPERTS if self.work.experts else 1)

    def prefill(
        self,
        tokens: int,
        pairs: float,
        running: int,
        finished: int,
        *,
        kv: float = 0.0,
        ahead: float = 0.0,
        idle: bool = False,
    ) -> float:
        """Seconds of a step with prompt tokens.

        Args:
            tokens: Prompt tokens of the step.
            pairs: Pairs of a prompt token and a token before it, of all prompts.
            running: Requests that get a token besides.
            finished: Prompts that end in the step.
            kv: Seconds of reading the KV cache of the running requests.
            ahead: Seconds before the step at which a CPU has begun to start its kernels: during the step before it.
            idle: Whether there was no step before it.
        """
        of, work = self.calibration, self.work
        every = tokens + running
        attention = (pairs * work.pair_flops + self._window_pairs(tokens, pairs) * work.window_pair_flops) / (
            self.device.flops * of.attention
        )
        seconds = (
            of.step + work.layers * of.prefill_layer + self._quantise + running * self._each + kv
            + self._products(every, running + finished, self._compute) + attention + self._reduce(every)
        )  # fmt: skip
        return max(seconds, self.launch(every) - ahead) + (of.start if idle else 0.0)

    def launch(self, tokens: int) -> float:
        """Seconds in which a CPU starts the kernels of a step of `tokens`."""
        return self._launch if tokens > _LARGEST_GRAPH else self.calibration.shortest_step

    @cached_property
    def _launch(self) -> float:
        return self.work.layers * self.calibration.launch * (_LAUNCH_OF_EXPERTS if self.work.experts else 1)

    def _window_pairs(self, tokens: int, pairs: float) -> float:
        return min(pairs, tokens * self.work.window) if self.work.window else 0.0

    def decode_step(self, running: int, context: float) -> float:
        """Seconds of a step without prompts, in which each running request has `context` tokens."""
        return max(self.decode(running) + running * self.kv_seconds(context), self.calibration.shortest_step)

    def joining(self, blocks: int) -> float:
        """Seconds that the first step of a request takes longer whose KV cache of so many blocks was pulled."""
        return self.calibration.join + blocks * self.work.layers * _DESCRIPTOR

    def prompt(self, tokens: float, step_tokens: int) -> float:
        """Seconds of a prompt alone, in as many steps as it needs.

        Args:
            tokens: Its length.
            step_tokens: `max-num-batched-tokens`.
        """
        seconds, done = 0.0, 0.0
        while done < tokens:
            part = min(step_tokens, tokens - done)
            last = int(done + part >= tokens)
            step = self.prefill(round(part), part * (done + part / 2), 0, last, idle=not done)
            seconds += max(step, self.calibration.shortest_step)
            done += part
        return seconds

    def kv_seconds(self, context: float) -> float:
        """Seconds of reading the KV cache of one running request."""
        return context * self.kv_token + min(context, self.work.window or math.inf) * self.window_token
