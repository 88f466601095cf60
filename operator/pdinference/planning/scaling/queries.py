"""The scaling signals as PromQL, for autoscalers that ask a Prometheus instead of the operator.

Each query is one number: the sum over the pods of a role, in the unit of the signal, so that the same targets hold.
They compute what `prefill` and `decode` in this package do, from the same metrics of vLLM; docs/autoscaling.md says in
what they differ. A query answers nothing, and never NaN, where nothing is known: nothing changes the number of pods.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from pdinference.api import names
from pdinference.api.names import Role
from pdinference.planning.scaling.decode import KEEPS
from pdinference.planning.scaling.signals import DRAIN_SECONDS, Signal
from pdinference.planning.scaling.vllm_metrics import HOLDING_STAGES, VllmMetric

DEFAULT_WINDOW_SECONDS: Final = 120
"""Over how long rates are taken: four scrapes that are half a minute apart."""
LABEL_NAMESPACE: Final = "namespace"
LABEL_POD: Final = "pod"
LABEL_NAME: Final = names.LABEL_NAME.translate(str.maketrans("./-", "___"))
"""A pod's label as Prometheus writes it, once a monitor names it in `podTargetLabels`."""
LABEL_ROLE: Final = names.LABEL_ROLE.translate(str.maketrans("./-", "___"))
UNSPEAKABLE: Final = frozenset({Signal.KV_DEMAND})
"""Signals that PromQL cannot compute: vLLM tells the size of its KV cache in labels, which are no numbers there."""

_OWN: Final = "pdinference_"
_REMEMBERED: Final = "10m"
"""For how long a pod that was up and is no more counts as silent."""
_IDLE_SEEN: Final = "[1h:1m]"
"""How far back the pace of an idle pod is looked for."""


@dataclass(frozen=True, slots=True)
class Query:
    """A signal of one role of one resource.

    Attributes:
        signal: What to sum.
        role: Over whose pods.
        matchers: PromQL label matchers of the resource's pods: `matchers` makes them.
        window_seconds: Over how long rates are taken.
    """

    signal: Signal
    role: Role
    matchers: str
    window_seconds: int = DEFAULT_WINDOW_SECONDS

    def promql(self, target_milli: int | None = None) -> str:
        """The query.

        Args:
            target_milli: How much of the signal a pod is to bear, in thousandths: what a silent pod is taken to do.
        """
        pods = _Pods(f"{self.matchers},{_matcher(LABEL_ROLE, self.role)}", self.window_seconds)
        parameter = _Pods(f"{self.matchers},{_matcher(LABEL_ROLE, Role.PARAMETER)}", self.window_seconds)
        total = _decode_load(pods, parameter) if self.signal is Signal.DECODE_LOAD else _total(self.signal, pods)
        if target_milli is not None:
            total = f"{total} + {target_milli / 1000:.10g} * {pods.silent()}"
        return f"({total}) >= 0"


def adapter_metric(signal: Signal, role: Role) -> str:
    """What prometheus-adapter calls the signal of a role.

    Unlike the operator's own metrics it has the role in its name: the adapter hands all labels of a selector to a query
    as they are, and the load of D depends on what reaches P.
    """
    return str(signal).replace(_OWN, f"{_OWN}{role}_", 1)


def matchers(namespace: str, name: str) -> str:
    """Label matchers of all pods of a resource."""
    return f"{_matcher(LABEL_NAMESPACE, namespace)},{_matcher(LABEL_NAME, name)}"


def _matcher(label: str, value: str) -> str:
    # PromQL's strings in double quotes are Go's, which knows every escape that JSON writes.
    return f"{label}={json.dumps(value, ensure_ascii=False)}"


@dataclass(frozen=True, slots=True)
class _Pods:
    """Expressions that have one number for each pod, summed over the engines in it."""

    matchers: str
    window_seconds: int

    def gauge(self, metric: VllmMetric, also: str = "") -> str:
        return f"sum by ({LABEL_POD}) ({metric}{{{self.matchers}{also}}})"

    def rate(self, metric: VllmMetric, part: str = "") -> str:
        """Growth a second of a counter, or of a histogram's sum or count."""
        return f"sum by ({LABEL_POD}) (rate({metric}{part}{{{self.matchers}}}[{self.window_seconds}s]))"

    def total(self, metric: VllmMetric, part: str) -> str:
        return f"sum by ({LABEL_POD}) ({metric}{part}{{{self.matchers}}})"

    def growth(self, metric: VllmMetric) -> str:
        """Growth a second of a gauge, which can be negative."""
        found = f"sum by ({LABEL_POD}) (delta({metric}{{{self.matchers}}}[{self.window_seconds}s]))"
        return f"{found} / {self.window_seconds}"

    def mean_kv_usage(self) -> str:
        found = f"avg_over_time({VllmMetric.KV_USAGE}{{{self.matchers}}}[{self.window_seconds}s])"
        return f"avg by ({LABEL_POD}) ({found})"

    def kv_usage(self) -> str:
        return f"avg by ({LABEL_POD}) ({VllmMetric.KV_USAGE}{{{self.matchers}}})"

    def queued(self) -> str:
        """Waiting requests, less those that have their KV blocks already."""
        waiting = self.gauge(VllmMetric.WAITING)
        holding = self.gauge(VllmMetric.KV_FETCHES, f',stage=~"{"|".join(HOLDING_STAGES)}"')
        return f"clamp_min({waiting} - ({holding} or 0 * {waiting}), 0)"

    def arrived(self) -> str:
        """Requests a second that came in."""
        finished = self.rate(VllmMetric.PREFILL_SECONDS, "_count")
        grown = f"{self.growth(VllmMetric.WAITING)} + {self.growth(VllmMetric.RUNNING)}"
        return f"clamp_min({finished} + {grown}, 0)"

    def prefill_busy(self) -> str:
        """Part of the time that a pod prefilled; all of it while one long prompt says nothing of itself yet."""
        long_prompt = (
            f"1 + 0 * ({self.gauge(VllmMetric.RUNNING)} > 0) and {self.rate(VllmMetric.PREFILL_SECONDS, '_count')} == 0"
        )
        return f"(({long_prompt}) or clamp_max({self.rate(VllmMetric.PREFILL_SECONDS, '_sum')}, 1))"

    def seconds_a_token(self) -> str:
        tokens = VllmMetric.INTER_TOKEN_SECONDS
        return f"(({self.rate(tokens, '_sum')} / {self.rate(tokens, '_count')}) > 0)"

    def decoding(self) -> str:
        """The share of what a pod can do that it does."""
        pace = self.seconds_a_token()
        idle = f"scalar(min(min_over_time({pace}{_IDLE_SEEN}) or {pace}))"
        full = f"1 + 0 * ({self.queued()} > 0)"
        usage = self.mean_kv_usage()
        return f"(({full}) or (1 - (1 - {usage}) * clamp_max({idle} / {pace}, 1)) or {usage})"

    def prompt_length(self) -> str:
        """Mean prompt of requests that finished lately, or ever."""
        prompts = VllmMetric.PROMPT_LENGTHS
        lately = f"{self.rate(prompts, '_sum')} / {self.rate(prompts, '_count')}"
        ever = f"{self.total(prompts, '_sum')} / {self.total(prompts, '_count')}"
        return f"(({lately}) > 0 or ({ever}) > 0)"

    def silent(self) -> str:
        """How many pods answered Prometheus lately, are still there, and do not answer any more."""
        up = f"up{{{self.matchers}}}"
        lately = f"max by ({LABEL_POD}) (max_over_time({up}[{_REMEMBERED}])) == 1"
        return f"(count(max by ({LABEL_POD}) ({up}) == 0 and {lately}) or vector(0))"


def _total(signal: Signal, pods: _Pods) -> str:
    return _prefill_load(pods) if signal is Signal.PREFILL_LOAD else f"sum({_AMOUNTS[signal](pods)})"


def _queued_prompt_tokens(pods: _Pods) -> str:
    queued = pods.queued()
    return f"{queued} * {pods.prompt_length()} or {queued} == 0"


_AMOUNTS: Final[Mapping[Signal, Callable[[_Pods], str]]] = {
    Signal.KV_USAGE: _Pods.kv_usage,
    Signal.WAITING_REQUESTS: lambda pods: pods.gauge(VllmMetric.WAITING),
    Signal.RUNNING_REQUESTS: lambda pods: pods.gauge(VllmMetric.RUNNING),
    Signal.QUEUED_PROMPT_TOKENS: _queued_prompt_tokens,
    Signal.PROMPT_TOKENS_PER_SECOND: lambda pods: pods.rate(VllmMetric.PROMPT_TOKENS),
    Signal.GENERATION_TOKENS_PER_SECOND: lambda pods: pods.rate(VllmMetric.GENERATION_TOKENS),
}


def _prefill_load(pods: _Pods) -> str:
    """`prefill.prefill_load`: work in hand, times what arrives and waits for each request that is finished."""
    finished = f"sum({pods.rate(VllmMetric.PREFILL_SECONDS, '_count')})"
    asked_for = f"sum({pods.arrived()}) + sum({pods.gauge(VllmMetric.WAITING)}) / {DRAIN_SECONDS}"
    return f"sum({pods.prefill_busy()}) * (({asked_for}) / ({finished} > 0) or vector(1))"


def _decode_load(pods: _Pods, parameter: _Pods) -> str:
    """`decode.decode_load`: work in hand, times what arrives and waits for each request that is finished."""
    generated = f"sum({pods.rate(VllmMetric.GENERATION_TOKENS)})"
    finished = f"sum({pods.rate(VllmMetric.ANSWER_LENGTHS, '_count')})"
    tokens = f"sum({pods.rate(VllmMetric.ANSWER_LENGTHS, '_sum')})"
    # By how much the pods that decode now would have to decode longer for one more request a second.
    each = f"({tokens} / (({generated} > 0) * ({finished} > 0)))"
    arrivals = f"sum({parameter.arrived()})"
    waiting = f"(sum({pods.queued()}) + (sum({parameter.gauge(VllmMetric.WAITING)}) or vector(0)))"
    does = f"sum({pods.decoding()})"
    keeps = f"scalar(sum(clamp_max({pods.decoding()}, {KEEPS})))"
    asked_for = f"clamp_min({does} * {arrivals} * {each}, {keeps}) + {does} * {waiting} * {each} / {DRAIN_SECONDS}"
    return f"({asked_for} or {does})"
