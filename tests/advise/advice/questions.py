"""Small questions for advise."""

from typing import Any, Final

import yaml

from pdinference.api.validation import validated
from pdinference.memory import Inputs, known_facts, model_facts
from pdinference_advise.advice.advice import Advice, Question, advise
from pdinference_advise.advice.objectives import parse_objectives
from pdinference_advise.advice.offer import parse_offer
from pdinference_advise.advice.search import Effort
from pdinference_advise.advice.trial import run_trial
from pdinference_advise.advice.ways import parse_transports
from pdinference_advise.advice.workload.lengths import parse
from pdinference_advise.advice.workload.synthetic import RequestClass, Synthetic
from tests.conftest import REPOSITORY

QUICK: Final = Effort(short=150, long=300, probe=150, finalists=3, rounds=2, settling=5.0)


def answer(asked: Question) -> Advice:
    return advise(asked, lambda tasks: [run_trial(task, asked.peak, asked.objectives) for task in tasks], QUICK)


def llama() -> dict[str, Any]:
    document: dict[str, Any] = next(yaml.safe_load_all((REPOSITORY / "examples/llama-8b.yaml").read_text()))
    return document


def inputs_of(document: dict[str, Any]) -> Inputs:
    spec = validated(document).spec
    config, checkpoint = known_facts(spec, None)
    assert config is not None
    return Inputs(spec, model_facts(config), checkpoint)


def question(
    gpus: tuple[str, ...] = ("2xH200",),
    *,
    rate: float = 5.0,
    prompt: str = "1000",
    answer: str = "100",
    ttft: str | None = None,
    tpot: str | None = None,
    transports: tuple[str, ...] = (),
    prices: tuple[str, ...] = (),
    document: dict[str, Any] | None = None,
) -> Question:
    resource = document or llama()
    classes = (RequestClass(parse(prompt, "prompt"), parse(answer, "answer")),)
    load = Synthetic(rate, classes).trace(600 / rate)
    objectives = parse_objectives(ttft, tpot, 99, (), ())
    ways = parse_transports(transports)
    return Question(resource, inputs_of(resource), parse_offer(gpus, prices), ways, objectives, load, load)
