"""An advice as JSON data. Each predicted number has its source.

Tests: tests/advise/advice/test_advice.py, tests/advise/commands/advise/test_advise.py
"""

import math
from typing import Any

from pdinference.performance.calibration import TimeSource
from pdinference_advise.advice.advice import Advice
from pdinference_advise.advice.engines import CERTAINTY
from pdinference_advise.advice.layouts import EngineGroup
from pdinference_advise.advice.objectives import Objective
from pdinference_advise.advice.search import SearchResult
from pdinference_advise.advice.verdict import limit_of
from pdinference_advise.simulation.engine import EngineLimits


def as_json(advice: Advice) -> dict[str, Any]:
    """Verdict, arrangements and resource. Times are seconds."""
    question, best = advice.question, advice.verdict.best
    return {
        "verdict": advice.verdict.answer.value,
        "why": advice.verdict.why,
        "objectives": {
            "percentile": question.objectives.percentile,
            **_objective(question.objectives.default),
            "classes": {kind: _objective(one) for kind, one in question.objectives.of_kind},
        },
        "load": {
            "source": question.load.source,
            "requestsPerSecond": question.peak.rate,
            "summary": list(question.summary.lines()),
        },
        "gpus": [
            {"product": pool.product, "number": pool.number, "price": pool.price if question.offer.priced else None}
            for pool in question.offer.pools
        ],
        "arrangements": [{**result_json(one, advice), "best": one is best} for one in advice.results],
        "notes": [*advice.of_load, *advice.notes, *advice.of_range],
        "resource": advice.document(),
    }


def result_json(one: SearchResult, advice: Advice) -> dict[str, Any]:
    """One arrangement."""
    layout, built, trial = one.candidate.layout, one.candidate.built, one.trial
    errors, question = built.errors, advice.question
    arrangement, split = built.arrangement, built.arrangement.split
    first = _least_certain(built.prefill, built.transfer)
    token = built.decode
    percentile, tail = question.objectives.percentile, question.objectives.tail
    return {
        "name": layout.title,
        "mode": "Disaggregated" if layout.split else "Aggregated",
        "parameter": _group(layout.parameter, split.kind.limits) if layout.parameter and split else None,
        "decode": _group(layout.decode, arrangement.kind.limits),
        "path": ("HostLocal" if layout.host_local else "Network") if layout.split else None,
        "transport": layout.transport.name if layout.transport else None,
        "fp8KvCache": layout.fp8,
        "adaptive": split is not None and split.adaptive,
        "kvCacheBits": built.kv_bits,
        "hint": layout.hint,
        "gpus": layout.number,
        "keepsObjectives": trial.kept if question.objectives.given else None,
        "certainty": one.keeps.name.lower(),
        "ttft": _number(
            {"p50": trial.ttft[0], tail: trial.ttft[1]}, first, {"p50": errors.ttft_p50, tail: errors.ttft(percentile)}
        ),
        "tpot": _number(
            {"p50": trial.tpot[0], tail: trial.tpot[1]}, token, {"p50": errors.tpot_p50, tail: errors.tpot(percentile)}
        ),
        "gap": _number({"p99": trial.gap}, token, {"p99": errors.gap_p99}),
        "whole": _number({"p50": trial.whole[0], "p99": trial.whole[1]}, built.source, {"p50": errors.whole_p50}),
        "attainment": _number({"value": trial.attainment}, built.source, {}),
        "bearsTimesTheLoad": _number({"value": one.bears}, built.source, {"value": errors.rate}),
        "limit": limit_of(one).value,
        "gpuHoursPerHour": layout.number,
        "costPerHour": one.candidate.cost if question.offer.priced else None,
        "costPerMillionTokens": million(one) if question.offer.priced else None,
        "gpuHoursPerMillionTokens": layout.number / trial.tokens / 3600 * 1e6 if trial.tokens else None,
        "use": {
            "prefill": trial.use.prefill,
            "decode": trial.use.decode,
            "kvCache": trial.use.kv_cache,
            "transfer": trial.use.transfer,
            "apiServer": trial.use.api_server,
        },
    }


def million(one: SearchResult) -> float | None:
    """Cost, in prices or GPU-hours, of a million tokens of answers at the load; None without tokens."""
    return one.candidate.cost / one.trial.tokens / 3600 * 1e6 if one.trial.tokens else None


def _group(group: EngineGroup, limits: EngineLimits) -> dict[str, Any]:
    return {
        "product": group.product,
        "tensor": group.tensor,
        "engines": group.number,
        "tokensPerStep": limits.step_tokens,
        "requestsPerStep": limits.requests,
        "kvCacheTokens": limits.kv_tokens,
        "apiServers": limits.servers.number,
    }


def _objective(one: Objective) -> dict[str, float | None]:
    return {name: None if math.isinf(value) else value for name, value in (("ttft", one.ttft), ("tpot", one.tpot))}


def _least_certain(*sources: TimeSource | None) -> TimeSource:
    return max((one for one in sources if one is not None), key=CERTAINTY.index)


def _number(values: dict[str, float], source: TimeSource, errors: dict[str, float]) -> dict[str, Any]:
    """Numbers that are not known (no request has ended) are null, and their source is unknown."""
    known = {name: None if math.isnan(value) else value for name, value in values.items()}
    whose = TimeSource.UNKNOWN if None in known.values() else source
    return {**known, "source": whose.value, "error": errors}
