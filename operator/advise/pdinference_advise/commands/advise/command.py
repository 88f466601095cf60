"""The command `pdinference advise`.

Tests: tests/advise/commands/advise/test_advise.py
"""

import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import click
import yaml

from pdinference.api.validation import validated
from pdinference.cli.connection import connection_options
from pdinference.cli.documents import one_document, problems_reported
from pdinference.cli.file_options import file_option
from pdinference.cli.model_inputs import ModelOptions, model_options
from pdinference.cli.option_types import NumberRange
from pdinference.cli.plain_yaml import PlainDumper
from pdinference.cli.terminal import terminal
from pdinference.planning.objectives import StatedObjectives
from pdinference_advise.advice.advice import Advice, Question, advise, fitting
from pdinference_advise.advice.as_json import as_json
from pdinference_advise.advice.late_starts import Starts
from pdinference_advise.advice.objectives import (
    DEFAULT_PERCENTILE,
    RequestObjectives,
    duration,
    objectives_of,
    parse_objectives,
)
from pdinference_advise.advice.offer import parse_offer
from pdinference_advise.advice.problem import AdviceError
from pdinference_advise.advice.ways import parse_transports
from pdinference_advise.advice.workload.bounds import WorkloadError
from pdinference_advise.commands.advise.load import LoadOptions, load_options
from pdinference_advise.commands.advise.plot import draw, require_plotting
from pdinference_advise.commands.advise.processes import cores, simulations
from pdinference_advise.commands.advise.table import print_advice
from pdinference_advise.commands.calibrate.files import read_calibration

Json = dict[str, Any]


@click.command("advise")
@file_option()
@click.option("--gpus", metavar="NxPRODUCT", multiple=True, required=True, help="Such as 8xH100; repeatable.")
@click.option("--price", "prices", metavar="PRODUCT=PRICE", multiple=True, help="Of a GPU for an hour: H100=2.5.")
@click.option(
    "--transport", "transports", metavar="WAY", multiple=True,
    help="nvlink, tcp, rdma=40GB/s, or the GB/s of the network; repeatable.  [default: nvlink and tcp]",
)  # fmt: skip
@click.option(
    "--calibration", "calibrations", type=click.File(encoding="utf-8"), multiple=True,
    help="Of a product, by `pdinference calibrate`; repeatable.",
)  # fmt: skip
@click.option("--ttft", metavar="TIME", help="Objective for the time to the first token, such as 500ms.")
@click.option("--tpot", metavar="TIME", help="Objective for the mean time per output token of an answer: 30ms.")
@click.option(
    "--percentile", type=NumberRange(50, 99.9),
    help="Percent of the requests that should keep each objective.  [default: of the resource, or 99]",
)  # fmt: skip
@click.option(
    "--objective", "of_kinds", metavar="CLASS:ttft=TIME,tpot=TIME", multiple=True, help="Of one class; repeatable."
)
@click.option("--start", metavar="TIME", help="How long a pod takes to start, such as 90s.  [default: of the status]")
@connection_options
@load_options
@model_options
@click.option("--jobs", type=click.IntRange(1, 64), help="Processes.  [default: one for each core]")
@click.option(
    "--plot", type=click.Path(path_type=Path, dir_okay=False), help="Write TTFT and TPOT over rate: .svg, .png."
)
@click.option(
    "-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table", show_default=True,
    help="yaml: the resource alone.",
)  # fmt: skip
def advise_command(
    *,
    source: IO[str],
    load: LoadOptions,
    model: ModelOptions,
    jobs: int | None,
    plot: Path | None,
    output: str,
    **wishes: Any,
) -> None:
    """Predict whether to split a model into P and D on your GPUs, how, and what to expect.

    FILE is a PDInference, whose replicas, parallelism, products, mode and path are varied. The load, the objectives and
    the GPUs come from options. Nothing is read from or written to a cluster, except with --live.
    """
    if plot is not None:
        require_plotting(plot)
    document = one_document(source)
    try:
        question = _question(document, source.name, load, model, _Wishes(**wishes))
        advice = _answer(question, jobs, plot)
    except (AdviceError, WorkloadError) as error:
        raise click.ClickException(str(error)) from None
    _print(advice, output)


@dataclass(frozen=True, slots=True)
class _Wishes:
    """Options for the GPUs, the ways between them, the objectives, and the start of a pod."""

    gpus: tuple[str, ...]
    prices: tuple[str, ...]
    transports: tuple[str, ...]
    calibrations: tuple[IO[str], ...]
    ttft: str | None
    tpot: str | None
    percentile: float | None
    of_kinds: tuple[str, ...]
    start: str | None


def _question(document: Json, file: str, load: LoadOptions, model: ModelOptions, wishes: _Wishes) -> Question:
    with problems_reported(document, file):
        resource = validated(document)
    own = tuple(read_calibration(file) for file in wishes.calibrations)
    offer = parse_offer(
        wishes.gpus, wishes.prices, memory_known=model.memory is not None, calibrated=(file.product for file in own)
    )
    ways = parse_transports(wishes.transports)
    requests = load.read(resource.metadata.name)
    kinds = {arrival.kind for arrival in requests.arrivals} - {""}
    objectives = _objectives(wishes, StatedObjectives.of(resource.spec.objectives), kinds)
    facts = model.inputs(resource, (document.get("status") or {}).get("model"))
    peak = load.peak(requests)
    starts = (
        Starts.stated(duration(wishes.start, "--start")) if wishes.start else Starts.of_status(document.get("status"))
    )
    return fitting(Question(document, facts, offer, ways, objectives, requests, peak, own, starts))


def _objectives(wishes: _Wishes, stated: StatedObjectives | None, kinds: set[str]) -> RequestObjectives:
    """Those of the options, or else of the resource, whose percentile an option may replace."""
    if stated is None or wishes.ttft or wishes.tpot or wishes.of_kinds:
        return parse_objectives(
            wishes.ttft, wishes.tpot, wishes.percentile or DEFAULT_PERCENTILE, wishes.of_kinds, kinds
        )
    found = objectives_of(stated)
    return replace(found, percentile=wishes.percentile or found.percentile)


def _answer(question: Question, jobs: int | None, plot: Path | None) -> Advice:
    with simulations(question.peak, question.objectives, jobs or cores()) as simulate:
        advice = advise(question, simulate, expect=simulate.expect)
        if plot is not None:
            draw(advice, simulate, plot)
    return advice


def _print(advice: Advice, output: str) -> None:
    if output == "json":
        json.dump(as_json(advice), sys.stdout, indent=2)
        sys.stdout.write("\n")
        return
    resource = yaml.dump(advice.document(), Dumper=PlainDumper, sort_keys=False, width=120)
    if output == "table":
        print_advice(advice, resource, terminal())
        return
    sys.stdout.write(resource)
