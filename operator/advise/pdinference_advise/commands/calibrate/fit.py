"""Fits the model of a step to a measurement, and writes the calibration.

Tests: tests/advise/commands/calibrate/test_calibrate.py
"""

from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

import click
import yaml

from pdinference.api.v1alpha1 import PDInference
from pdinference.cli.documents import one_document, problems_reported
from pdinference.cli.output import say
from pdinference.cli.plain_yaml import PlainDumper
from pdinference.memory import UnusableConfigError, model_facts
from pdinference.performance.devices import Device, device_of
from pdinference.performance.work import NotCountedError, work_of
from pdinference_advise.commands.calibrate.files import read_measurement
from pdinference_advise.commands.calibrate.model import ROLE, Json, aggregated, settings_of, with_config
from pdinference_advise.fitting.calibration_file import CalibrationFile, file_of, shape_of
from pdinference_advise.fitting.fitting import BadFitError, Fit, fit
from pdinference_advise.fitting.measurement import Measurement

_TERA, _GIGA = 1e12, 1e9
_LINK: Final = 25 * _GIGA
"""Bytes a second between devices: PCIe 4.0 x16, because the options do not state it."""


@dataclass(frozen=True, slots=True)
class StatedPeaks:
    """Stated peaks of a device; None for those that are known of its product.

    Attributes:
        tflops: 10^12 operations a second in 16 bits, without sparsity.
        gigabytes: 10^9 bytes a second of its memory.
    """

    tflops: float | None
    gigabytes: float | None

    def device(self, product: str) -> Device:
        """The device with these peaks.

        Raises:
            ClickException: A peak is neither stated nor known.
        """
        if self.tflops and self.gigabytes:
            return Device(self.tflops * _TERA, self.tflops * _TERA, self.gigabytes * _GIGA, _LINK)
        known = device_of(product)
        if known is None or self.tflops or self.gigabytes:
            raise click.ClickException(
                f"The peaks of {product} are not known here. Add --peak-tflops and --bandwidth-gbs."
            )
        return known


def calibrate(
    raw: IO[str],
    *,
    source: IO[str] | None,
    model_config: Path | None,
    product: str,
    peaks: StatedPeaks,
    tolerance: float,
) -> CalibrationFile:
    """Fit the model of a step, and print its errors to standard error.

    Args:
        raw: File with the measurement.
        source: File with the resource that was measured; None if the measurement names it.
        model_config: The model's config.json; None if the measurement has it.
        product: Value of the node label; empty for the first product of D.
        peaks: Peaks of the device.
        tolerance: Relative error that a tenth of the times may exceed.

    Raises:
        ClickException: A file is not valid, a peak is unknown, or the errors are too large.
    """
    measurement = read_measurement(raw)
    resource, config = _measured(raw, measurement, source, model_config)
    named = product or next(iter(resource.spec.products(ROLE)), "") or "CPU"
    device = peaks.device(named)
    try:
        facts = model_facts(config)
        shape = shape_of(facts)
        found = fit(
            measurement.points,
            work_of(facts, settings_of(resource, config)),
            device,
            product=named,
            step_tokens=measurement.step_tokens,
            tolerance=tolerance,
        )
    except (BadFitError, NotCountedError, UnusableConfigError) as error:
        raise click.ClickException(f"{raw.name}: {error}") from None
    _print_errors(found, measurement.notes)
    return file_of(found, device, measurement, model=shape)


def write(file: CalibrationFile, output: Path | None) -> None:
    """Write a calibration to a file, or to standard output.

    Raises:
        ClickException: The file cannot be written.
    """
    text = yaml.dump(file.document(), Dumper=PlainDumper, sort_keys=False, width=120)
    if output is None:
        click.echo(text, nl=False)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"{output} cannot be written: {error.strerror}.") from None


def _measured(
    raw: IO[str], measurement: Measurement, source: IO[str] | None, model_config: Path | None
) -> tuple[PDInference, Json]:
    """The resource that was measured, and the config.json of its model."""
    document = aggregated(one_document(source)) if source else measurement.about.get("resource")
    if not isinstance(document, dict):
        raise click.ClickException(f"{raw.name} names no PDInference. Add -f FILE.")
    with problems_reported(document, raw.name if source is None else source.name):
        return with_config(document, None, model_config, measurement.config)


def _print_errors(found: Fit, notes: tuple[str, ...]) -> None:
    """Print each time with its prediction."""
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
