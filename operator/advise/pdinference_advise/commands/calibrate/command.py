"""The commands `pdinference calibrate measure` and `pdinference calibrate fit`.

Tests: tests/advise/commands/calibrate/test_calibrate.py
"""

import sys
from pathlib import Path
from typing import IO

import click

from pdinference.cli.file_options import file_option
from pdinference.cli.installation import installation
from pdinference.cli.option_types import NumberRange
from pdinference.manifests import RenderSettings
from pdinference_advise.commands.calibrate.fit import StatedPeaks, calibrate, write
from pdinference_advise.commands.calibrate.measure import measure_here, measuring, print_job


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
    found = measuring(source, model_dir, model_config, quick=quick)
    if local:
        sys.exit(measure_here(found, python, output))
    print_job(found, settings)


@calibrate_group.command("fit")
@click.argument("raw", type=click.File(encoding="utf-8"))
@file_option("PDInference, if RAW names none.", required=False)
@click.option(
    "--model-config", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="config.json, if RAW has none."
)
@click.option("--product", default="", help="Value of the node label.  [default: D's first product]")
@click.option("--peak-tflops", type=NumberRange(0, 1e6, min_open=True), help="Peak in 16 bits, without sparsity.")
@click.option("--bandwidth-gbs", type=NumberRange(0, 1e6, min_open=True), help="Peak of the device's memory.")
@click.option(
    "--tolerance",
    type=NumberRange(0.01, 10),
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
    peaks = StatedPeaks(peak_tflops, bandwidth_gbs)
    file = calibrate(raw, source=source, model_config=model_config, product=product, peaks=peaks, tolerance=tolerance)
    write(file, output)
