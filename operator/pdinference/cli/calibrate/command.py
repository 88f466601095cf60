"""The commands `pdinference calibrate measure` and `pdinference calibrate fit`."""

import subprocess
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from pdinference.cli.documents import one_document, problems_told
from pdinference.cli.file_options import file_option
from pdinference.cli.installation import installation
from pdinference.cli.output import say
from pdinference.manifests import RenderSettings

if TYPE_CHECKING:
    from pdinference.api.v1alpha1 import PDInference
    from pdinference.performance.devices import Device
    from pdinference.performance.fitting import Fit
    from pdinference.planning.memory.settings import Settings

_TERA, _GIGA = 1e12, 1e9
_ARGUMENT_BYTES = 128 * 1024
"""Longest argument of a program (MAX_ARG_STRLEN of Linux)."""


@click.group("calibrate")
def calibrate_group() -> None:
    """Measure how long steps of vLLM take on your device, so that predictions are about that device."""


@calibrate_group.command("measure")
@file_option()
@click.option(
    "--model-dir", type=click.Path(path_type=Path, exists=True, file_okay=False), help="Folder with config.json."
)
@click.option(
    "--model-config", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="The model's config.json."
)
@click.option("--local", is_flag=True, help="Measure on this machine, instead of printing a Job.")
@click.option("--python", default=sys.executable, show_default=False, help="With --local: Python that has vLLM.")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="With --local: file to write.")
@click.option("--quick", is_flag=True, help="Fewer repetitions.")
@installation
def measure_command(
    *,
    source: IO[str],
    model_dir: Path | None,
    model_config: Path | None,
    local: bool,
    python: str,
    output: Path | None,
    quick: bool,
    settings: RenderSettings,
) -> None:
    """Print a Job that measures on the node of a D pod, or measure on this machine.

    The Job has the image, devices and options of D in FILE. It serves random weights in the shape of the model, so it
    needs no weights and no Secret. Its last line of output is the measurement.
    """
    from pdinference.cli.calibrate.job import ROLE  # noqa: PLC0415 - only this command needs the planner
    from pdinference.engine.command import script  # noqa: PLC0415
    from pdinference.engine.step_measurement import SCRIPT, measuring_options  # noqa: PLC0415

    document = _aggregated(one_document(source))
    with problems_told(document, source.name):
        resource, config = _with_config(document, model_dir, model_config)
    own = _settings(resource, config)
    options = measuring_options(
        resource, config, step_tokens=own.max_num_batched_tokens, requests=own.max_num_seqs, quick=quick
    )
    if max(map(len, options)) > _ARGUMENT_BYTES:
        raise click.ClickException(f"The model's config.json is longer than {_ARGUMENT_BYTES} bytes.")
    if local:
        command = [python, "-c", script(SCRIPT), *([f"--output={output}"] if output else []), *options]
        sys.exit(subprocess.run(command, check=False).returncode)  # noqa: S603 - vLLM of this machine, as asked for
    _print_job(document, resource, options, settings, ROLE)


def _print_job(
    document: dict[str, Any], resource: "PDInference", options: list[str], settings: RenderSettings, role: Any
) -> None:
    import yaml  # noqa: PLC0415

    from pdinference.cli.calibrate.job import job_name, manifests  # noqa: PLC0415
    from pdinference.cli.doctor.subject import subject_of  # noqa: PLC0415
    from pdinference.cli.plain_yaml import PlainDumper  # noqa: PLC0415

    subject = subject_of(document, settings, stored=False)
    name, namespace = resource.metadata.name, resource.metadata.namespace
    objects = manifests(name, namespace, subject.templates[role], subject.claims.get(role), options)
    job = f"-n {namespace} job/{job_name(name)}"
    click.echo(
        "# kubectl apply -f FILE    # this file\n"
        f"# kubectl wait {job} --for=condition=Complete --timeout=30m\n"
        f"# kubectl logs {job} > raw.log\n"
        "# pdinference calibrate fit raw.log -o calibration.yaml"
    )
    yaml.dump_all(objects, sys.stdout, Dumper=PlainDumper, sort_keys=False, explicit_start=True, width=120)


@calibrate_group.command("fit")
@click.argument("raw", type=click.File(encoding="utf-8"))
@file_option("PDInference, if RAW names none.", required=False)
@click.option(
    "--model-config", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="config.json, if RAW has none."
)
@click.option("--product", default="", help="Value of the node label.  [default: D's first product]")
@click.option("--peak-tflops", type=click.FloatRange(0, 1e6, min_open=True), help="Peak in 16 bits, without sparsity.")
@click.option("--bandwidth-gbs", type=click.FloatRange(0, 1e6, min_open=True), help="Peak of the device's memory.")
@click.option(
    "--tolerance",
    type=click.FloatRange(0.01, 10),
    default=0.25,
    show_default=True,
    help="Error that a tenth of the times may exceed; none may have twice as much.",
)
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="File.  [default: print it]")
def fit_command(
    *,
    raw: IO[str],
    source: IO[str] | None,
    model_config: Path | None,
    product: str,
    peak_tflops: float | None,
    bandwidth_gbs: float | None,
    tolerance: float,
    output: Path | None,
) -> None:
    """Fit the model of a step to the measurement in RAW, and write a calibration.

    RAW is what `pdinference calibrate measure` gave, or the log of its Job. A quarter of the times is not used for the
    fit; their errors are printed. The exit status is 1 if some time differs too much.
    """
    import yaml  # noqa: PLC0415

    from pdinference.cli.calibrate.files import read_measurement  # noqa: PLC0415
    from pdinference.cli.plain_yaml import PlainDumper  # noqa: PLC0415
    from pdinference.performance.calibration_file import file_of, shape_of  # noqa: PLC0415
    from pdinference.performance.fitting import BadFitError, fit  # noqa: PLC0415
    from pdinference.performance.work import NotCountedError, work_of  # noqa: PLC0415
    from pdinference.planning.memory import UnusableConfigError, model_facts  # noqa: PLC0415

    measurement = read_measurement(raw)
    document = _aggregated(one_document(source)) if source else measurement.about.get("resource")
    if not isinstance(document, dict):
        raise click.ClickException(f"{raw.name} names no PDInference. Add -f FILE.")
    with problems_told(document, raw.name if source is None else source.name):
        resource, config = _with_config(document, None, model_config, measurement.config)
    named = product or next(iter(resource.spec.products(_role())), "") or "CPU"
    device = _device(named, peak_tflops, bandwidth_gbs)
    try:
        facts = model_facts(config)
        shape = shape_of(facts)
        found = fit(
            measurement.points,
            work_of(facts, _settings(resource, config)),
            device,
            product=named,
            step_tokens=measurement.step_tokens,
            tolerance=tolerance,
        )
    except (BadFitError, NotCountedError, UnusableConfigError) as error:
        raise click.ClickException(f"{raw.name}: {error}") from None
    _tell(found, measurement.notes)
    file = file_of(found, device, measurement, model=shape)
    text = yaml.dump(file.document(), Dumper=PlainDumper, sort_keys=False, width=120)
    if output:
        output.write_text(text, encoding="utf-8")
    else:
        click.echo(text, nl=False)


def _tell(found: "Fit", notes: tuple[str, ...]) -> None:
    """The times with their predictions."""
    for note in notes:
        say(f"Not measured: {note}", err=True)
    for each in found.residuals:
        mark = "held out" if each.held_out else "used"
        click.echo(
            f"{each.point!s:<60} {1000 * each.point.seconds:>10.2f} ms {1000 * each.predicted:>10.2f} ms "
            f"{each.error:>+6.0%}  {mark}",
            err=True,
        )
    say(f"Median error of the times that were held out: {found.held_out_error:.1%}.", err=True)
    if found.assumed:
        say(f"Hardly determined, so near the built-in values: {', '.join(found.assumed)}.", err=True)


def _aggregated(document: dict[str, Any]) -> dict[str, Any]:
    """The same with prefill and decode in one engine, as it is measured."""
    spec = document.get("spec")
    return {**document, "spec": {**spec, "mode": "Aggregated"}} if isinstance(spec, dict) else document


def _with_config(
    document: dict[str, Any], folder: Path | None, file: Path | None, known: dict[str, Any] | None = None
) -> tuple["PDInference", dict[str, Any]]:
    """The resource, and the model's config.json."""
    from pdinference.api.validation import validated  # noqa: PLC0415
    from pdinference.cli.plan.model_files import read_model  # noqa: PLC0415
    from pdinference.models.errors import ModelFilesError  # noqa: PLC0415

    resource = validated(document)
    stated = resource.spec.model.architecture
    if not (folder or file) and (config := known or (dict(stated.config) if stated and stated.config else None)):
        return resource, config
    try:
        return resource, read_model(resource.spec.model.source, folder, file)[0]
    except ModelFilesError as error:
        raise click.ClickException(f"{resource.metadata.name}: {error}") from None


def _settings(resource: "PDInference", config: dict[str, Any]) -> "Settings":
    from pdinference.planning.memory import (  # noqa: PLC0415
        Inputs,
        UnusableConfigError,
        UnusableSpecError,
        model_facts,
        plan_role,
    )

    try:
        return plan_role(Inputs(resource.spec, model_facts(config)), _role()).settings
    except (UnusableConfigError, UnusableSpecError) as error:
        raise click.ClickException(f"{resource.metadata.name}: {error}") from None


def _role() -> Any:
    from pdinference.cli.calibrate.job import ROLE  # noqa: PLC0415

    return ROLE


def _device(product: str, tflops: float | None, gbs: float | None) -> "Device":
    from pdinference.performance.devices import Device, device_of  # noqa: PLC0415

    if tflops and gbs:
        return Device(tflops * _TERA, tflops * _TERA, gbs * _GIGA, 25 * _GIGA)
    known = device_of(product)
    if known is None or tflops or gbs:
        raise click.ClickException(f"The peaks of {product} are not known here. Add --peak-tflops and --bandwidth-gbs.")
    return known
