"""The whole advice: from a resource, a load, objectives and GPUs to a verdict, a table and a resource."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, islice
from typing import Any, Final

from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.api.v1alpha1.connectors import LIMITS
from pdinference.api.v1alpha1.defaults import prefills_in_one_step
from pdinference.memory import Inputs, tensor_sizes
from pdinference.memory.split import GPUS_OF_A_HOST
from pdinference.performance.step import StepModel
from pdinference_advise.advice import late_starts, long_prompts, router_load, slow_tokens
from pdinference_advise.advice.engines import DoesNotFitError, Engines
from pdinference_advise.advice.estimate import Demand, demand_of, estimate
from pdinference_advise.advice.late_starts import Starts
from pdinference_advise.advice.layouts import SIZES, Layout, layouts
from pdinference_advise.advice.objectives import RequestObjectives
from pdinference_advise.advice.offer import Offer
from pdinference_advise.advice.problem import AdviceError
from pdinference_advise.advice.resource import FIXED, Ranges, Scaling, document_of
from pdinference_advise.advice.search import Candidate, Effort, Expect, Search, SearchResult, Simulate
from pdinference_advise.advice.verdict import FirstLimit, Verdict, judge, limit_of, ranked, stalls
from pdinference_advise.advice.ways import Transport
from pdinference_advise.advice.workload.summary import Summary, summarise
from pdinference_advise.advice.workload.trace import Trace
from pdinference_advise.fitting.calibration_file import CalibrationFile
from pdinference_advise.simulation.arrivals import Arrival

_MOST_REPLICAS = 1000
_BUSIER: Final = 1.1
"""The busiest part is described if it has so many times the tokens per second of the load."""
_LIMITS_OF_BYTES: Final = frozenset({FirstLimit.DECODE, FirstLimit.KV})
"""Limits that an FP8 KV cache moves."""
_LIMITS_OF_D: Final = _LIMITS_OF_BYTES | {FirstLimit.API}
"""Limits that move if P answers some requests alone, in a split arrangement."""
SMALL_STEP: Final = 2048
"""Tokens a step that are tried without P. D was measured with as many: prompts delay tokens by 56 ms, not 220."""
_SHORTER: Final = 1.5
"""Gaps that are so many times as long as a smaller step takes become shorter with it."""


@dataclass(frozen=True)
class Question:
    """What is asked.

    Attributes:
        document: The user's document, which is valid.
        inputs: Inputs of its memory plan.
        offer: The GPUs.
        transports: The ways between P and D to compare.
        objectives: What requests should keep.
        load: All requests.
        peak: Those that are simulated: the busiest part of them.
        calibrations: The user's own measurements of products.
        starts: How long pods take to start.
    """

    document: Mapping[str, Any]
    inputs: Inputs
    offer: Offer
    transports: tuple[Transport, ...]
    objectives: RequestObjectives
    load: Trace
    peak: Trace
    calibrations: tuple[CalibrationFile, ...] = ()
    starts: Starts = late_starts.UNKNOWN

    @cached_property
    def summary(self) -> Summary:
        """What the busiest part is like."""
        return summarise(self.peak)

    @cached_property
    def demand(self) -> Demand:
        """The mean work of the busiest part."""
        return demand_of(self.peak.arrivals, self.peak.seconds, self.summary.repeated)


def fitting(question: Question) -> Question:
    """The same without requests that are longer than the model takes.

    Raises:
        AdviceError: All of them are.
    """
    load, peak, inputs = question.load, question.peak, question.inputs
    limit = inputs.spec.model.max_model_length or inputs.facts.max_length
    if limit is None:
        return question
    kept = _shorter(peak, limit)
    if not kept:
        raise AdviceError(
            f"No request fits {limit:,} tokens (spec.model.maxModelLength, or the model's own limit). Raise it, or "
            "give shorter --prompt-tokens and --answer-tokens."
        )
    if len(kept) == len(peak.arrivals):
        return question
    left_out = len(peak.arrivals) - len(kept)
    note = (
        f"{left_out:,} of {len(peak.arrivals):,} requests ({left_out / len(peak.arrivals):.1%}) are longer than "
        f"{limit:,} tokens, and are left out: everything here is about the others."
    )
    if inputs.facts.max_length is None or limit < inputs.facts.max_length:
        note += " Raise spec.model.maxModelLength to include more of them."
    load = replace(load, arrivals=_shorter(load, limit), notes=(*load.notes, note))
    return replace(question, load=load, peak=replace(peak, arrivals=kept))


def _shorter(trace: Trace, limit: int) -> tuple[Arrival, ...]:
    """The requests that are not longer than a limit, in tokens."""
    return tuple(one for one in trace.arrivals if one.prompt + one.answer <= limit)


@dataclass(frozen=True)
class Advice:
    """The answer.

    Attributes:
        question: What was asked.
        verdict: Whether to split.
        results: Arrangements, the best first.
        of_load: What a reader should know about the load, in sentences: what is left out, which part is simulated.
        notes: What else a reader should know, in sentences.
    """

    question: Question
    verdict: Verdict
    results: tuple[SearchResult, ...]
    of_load: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def shown(self) -> SearchResult:
        """The arrangement whose resource is printed."""
        return self.verdict.best or self.results[0]

    def document(self) -> dict[str, Any]:
        """The resource to apply."""
        question, layout = self.question, self.shown.candidate.layout
        memory = question.inputs.memory
        stated = int(memory.value) if memory is not None and memory.value else None
        return document_of(question.document, layout, self.ranges(), memory=stated)

    def ranges(self) -> Ranges:
        """Replicas from what the load needs before pods can start for it to what the GPUs allow; else fixed."""
        question, layout = self.question, self.shown.candidate.layout
        low = {role: max(self._mean, share or 0.0) for role, share in self._before_starts.items()}
        pool = {one.product: one.number for one in question.offer.pools}
        high = min(pool[product] / number for product, number in layout.gpus.items())
        decode = _range(layout.pods or layout.decode.number, low[Role.DECODE], high)
        if layout.parameter is None or layout.host_local:
            return Ranges(None, decode) if decode.least < decode.most else FIXED
        parameter = _range(layout.parameter.number, low[Role.PARAMETER], high)
        if parameter.least == parameter.most and decode.least == decode.most:
            return FIXED
        return Ranges(parameter, decode, question.offer.gpus)

    @property
    def _mean(self) -> float:
        """The mean load as a share of the busiest part."""
        return min(1.0, self.question.load.rate / self.question.peak.rate)

    @cached_property
    def _before_starts(self) -> dict[Role, float | None]:
        """By role with pods of its own, the share of the busiest minute that comes before pods start for it."""
        question, layout = self.question, self.shown.candidate.layout
        alone = layout.parameter is None or layout.host_local
        known = question.starts.seconds
        return {
            role: late_starts.least_share(question.load, role, known[role]) if role in known else None
            for role in ((Role.DECODE,) if alone else ENGINE_ROLES)
        }

    @property
    def of_range(self) -> tuple[str, ...]:
        """What a reader should know about the range of replicas, in sentences."""
        ranges = self.ranges()
        if ranges == FIXED:
            return ("No autoscaling block: the load needs as many replicas as the peak, and the GPUs allow no more.",)
        return tuple(late_starts.note(self.question.starts, self._before_starts, self._mean))


def _range(number: int, low: float, high: float) -> Scaling:
    return Scaling(max(1, math.ceil(number * low)), max(number, min(_MOST_REPLICAS, math.floor(number * high))))


def advise(
    question: Question, simulate: Simulate, effort: Effort | None = None, expect: Expect = lambda _: None
) -> Advice:
    """Answer a question.

    Args:
        question: What is asked.
        simulate: Does simulations.
        effort: How many.
        expect: Takes how many are still to come.

    Raises:
        AdviceError: Something of the model or the GPUs is not known, or the model fits nowhere.
    """
    engines = Engines(question.document, question.inputs, question.demand.prompt, question.calibrations)
    sizes, notes = _sizes(question, engines)
    transports = tuple(_possible(question))
    found = layouts(question.offer, sizes, transports, mla=question.inputs.facts.mla is not None)
    candidates = [_candidate(question, engines, layout) for layout in found]
    chosen = effort or _effort(question)
    search = Search(question.demand, question.objectives, simulate, chosen, expect)
    results = search.results(candidates)
    results += search.judge(list(_hints(question, engines, results)))
    order = ranked(results, question.objectives)
    verdict = judge([one for one in order if not one.candidate.layout.hint], question.objectives)
    arrivals, given = question.peak.arrivals, question.objectives
    long = long_prompts.note(arrivals, given, list(_steps(engines, sizes, Role.PARAMETER)))
    kinds = sorted({arrival.kind for arrival in arrivals})
    slow = slow_tokens.note(kinds, given, list(_steps(engines, sizes, Role.DECODE)), question.demand.context)
    return Advice(
        question,
        verdict,
        tuple(order),
        tuple(_of_load(question, chosen)),
        (
            *notes,
            *_notes(question, transports, sizes),
            *_published(question, results),
            *_of_groups(question),
            *long,
            *slow,
        ),
    )


def _steps(engines: Engines, sizes: Mapping[str, Iterable[int]], role: Role) -> Iterable[StepModel]:
    """Steps of all engines that a role may have."""
    for product, tensors in sizes.items():
        for tensor in tensors:
            yield engines.engine(role, product, tensor, split=True).kind.steps


def _candidate(question: Question, engines: Engines, layout: Layout) -> Candidate:
    built = engines.build(layout)
    return Candidate(built, estimate(built, question.demand, question.objectives), layout.cost(question.offer))


def _effort(question: Question) -> Effort:
    """Long answers need a longer load, so that as many requests run as later on."""
    return Effort(settling=max(20.0, 5 * question.demand.answer * 0.012))


def _sizes(question: Question, engines: Engines) -> tuple[dict[str, list[int]], list[str]]:
    """By product, the tensor-parallel sizes at which both modes fit.

    Raises:
        AdviceError: None does, or something is not known.
    """
    possible = set(tensor_sizes(question.inputs.facts))
    sizes: dict[str, list[int]] = {pool.product: [] for pool in question.offer.pools}
    reasons: Counter[str] = Counter()
    for pool in question.offer.pools:
        for tensor in SIZES:
            if tensor not in possible or tensor > min(pool.number, GPUS_OF_A_HOST):
                continue
            try:
                for role in ENGINE_ROLES:
                    engines.engine(role, pool.product, tensor, split=True)
                engines.engine(Role.DECODE, pool.product, tensor, split=False)
            except DoesNotFitError as error:
                reasons[str(error)] += 1
            else:
                sizes[pool.product].append(tensor)
    if not any(sizes.values()):
        why = "; ".join(reasons) or "no tensor-parallel size divides its heads"
        raise AdviceError(
            f"The model fits none of the GPUs: {why}. Give more or larger GPUs, a smaller spec.model.maxModelLength, "
            "or spec.engine.kvCache.dtype: fp8; `pdinference plan -f FILE` shows what takes the memory."
        )
    return sizes, [f"Left out: {reason}." for reason in reasons]


def _possible(question: Question) -> Iterable[Transport]:
    limits = LIMITS[question.inputs.spec.transfer.connector]
    return (one for one in question.transports if limits.nvlink or not one.host_local)


def _hints(question: Question, engines: Engines, results: Sequence[SearchResult]) -> Iterable[Candidate]:
    """Arrangements with other options of the engines, which may do something about a limit."""
    for layout in dict.fromkeys(_changed(question, ranked(results, question.objectives))):
        try:
            hint = _candidate(question, engines, layout)
        except AdviceError:  # not known for this model, such as the size of an FP8 KV cache with sparse attention
            continue
        if hint.estimate.load <= 1:
            yield hint


def _changed(question: Question, order: Sequence[SearchResult]) -> Iterable[Layout]:
    """An FP8 KV cache where its bytes limit; Adaptive where D limits; smaller steps where prompts delay tokens."""
    best = {one.candidate.layout.split: one for one in reversed(order)}
    if _is_16_bit(question):
        limits = [(one.candidate.layout, limit_of(one)) for one in order]
        network = (layout for layout, limit in limits if limit is FirstLimit.TRANSFER and not layout.host_local)
        of_the_best = (one.candidate.layout for one in best.values() if limit_of(one) in _LIMITS_OF_BYTES)
        for layout in (*islice(network, 1), *of_the_best):
            yield replace(layout, fp8=True)
    split = best.get(True)
    if split is not None and limit_of(split) in _LIMITS_OF_D and not _is_adaptive(split):
        yield replace(split.candidate.layout, adaptive=True)
    unsplit = best.get(False)
    if unsplit is not None and _small_steps_help(unsplit) and _takes_small_steps(question):
        yield replace(unsplit.candidate.layout, step_tokens=SMALL_STEP)


def _is_adaptive(one: SearchResult) -> bool:
    """Whether each request goes its own way, because the file says so."""
    split = one.candidate.built.arrangement.split
    return split is not None and split.adaptive


def _small_steps_help(one: SearchResult) -> bool:
    """Whether prompts delay tokens, by more than a smaller step takes."""
    of = one.candidate.built.arrangement.kind
    small = of.steps.prefill(SMALL_STEP, SMALL_STEP**2 / 2, 0, 1)
    return of.limits.step_tokens > SMALL_STEP and stalls(one.trial) and one.trial.gap > _SHORTER * small


def _takes_small_steps(question: Question) -> bool:
    """Whether the file leaves tokens a step open, and vLLM starts with fewer."""
    spec = question.inputs.spec
    engine, own = spec.engine, spec.decode
    open_ = own.max_num_batched_tokens is None and engine.max_num_batched_tokens is None
    most = own.max_num_seqs or engine.max_num_seqs or 0
    return open_ and not prefills_in_one_step(spec, Role.DECODE) and most <= SMALL_STEP


def _is_16_bit(question: Question) -> bool:
    return question.inputs.spec.engine.kv_cache.dtype == "auto" and question.inputs.facts.quantization is None


def _of_load(question: Question, effort: Effort) -> Iterable[str]:
    yield from question.load.notes
    yield from _too_few(len(question.peak.arrivals), question.objectives)
    part = question.peak.busiest(effort.seconds(effort.long, question.demand.rate))
    if question.peak.seconds < question.load.seconds or part.token_rate > _BUSIER * question.load.token_rate:
        yield (
            f"The times are those of the busiest {part.seconds / 60:.3g} min: {part.rate:.3g} requests/s and "
            f"{part.token_rate:,.0f} tokens/s. The means of the load are {question.load.rate:.3g} and "
            f"{question.load.token_rate:,.0f}."
        )


def _published(question: Question, results: Iterable[SearchResult]) -> Iterable[str]:
    """What to say where a publication of others was missed by more than the stated error.

    benchmarks/results/advise.md has these publications.
    """
    quantization = question.inputs.facts.quantization
    sharded = any(group.tensor > 1 for one in results for group in one.candidate.layout.groups)
    if sharded and quantization is not None and quantization.method == "mxfp4":
        yield (
            "The stated error is too small for TP 2 and more with experts in MXFP4: others measured gpt-oss-120b, and "
            "the first token took 2.1 to 3.3 times as long as predicted, a token 1.4 to 2.1 times (docs/advise.md). "
            "Measure before you decide."
        )


def _of_groups(question: Question) -> Iterable[str]:
    """What to say of a file whose instances are other than those that are compared."""
    spec = question.inputs.spec
    for role in spec.engine_roles:
        split = spec.of(role).parallelism
        if split.data > 1 or split.nodes > 1:
            yield (
                f"Instances on one node with tensor-parallel ranks are compared, and no others: "
                f"spec.{role}.parallelism of the file (data: {split.data}, nodes: {split.nodes}) is not among them."
            )


def _too_few(requests: int, objectives: RequestObjectives) -> Iterable[str]:
    """What to say of a load with less than one request beyond the percentile."""
    needed = math.ceil(100 / (100 - objectives.percentile) - 1e-6)
    if requests < needed:
        yield (
            f"A percentile of {objectives.percentile:g} needs at least {needed:,} requests, and the load has "
            f"{requests:,}: the times at {objectives.tail} are the longest of these. Give a longer load, or a lower "
            "--percentile."
        )


def _notes(question: Question, transports: tuple[Transport, ...], sizes: Mapping[str, Sequence[int]]) -> Iterable[str]:
    transfer = question.inputs.spec.transfer
    if len(transports) < len(question.transports):
        yield f"{transfer.connector} does not use NVLink, so the path HostLocal is not compared."
    elif any(way.host_local for way in transports) and 2 * min(chain(*sizes.values())) > GPUS_OF_A_HOST:
        yield f"One P and one D need more than the {GPUS_OF_A_HOST} GPUs of a host, so the path HostLocal is left out."
    if transfer.rdma is not None and not any(way.name == "rdma" for way in transports):
        yield (
            "spec.transfer.rdma is not compared, because its speed is not known here. Measure it with `pdinference "
            "doctor --bandwidth`, and add for example --transport rdma=40GB/s."
        )
    yield from router_load.note(question.inputs.spec.router.replicas, question.demand.rate * question.demand.answer)
    if len(question.offer.pools) > 1 and not question.offer.priced:
        yield "Without --price, GPUs of all products count the same."
