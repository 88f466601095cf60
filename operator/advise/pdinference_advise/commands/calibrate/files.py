"""Reads the files of a calibration: raw measurements, and the calibration itself.

Tests: tests/advise/commands/calibrate/test_calibrate.py
"""

from typing import IO, Any

import click
from pydantic import ValidationError

from pdinference.api.bounded_json import BoundedJsonError, JsonLimits, loads
from pdinference.cli.yaml_files import text_of, yaml_documents
from pdinference_advise.fitting.calibration_file import CalibrationFile, InvalidCalibrationError, load
from pdinference_advise.fitting.measurement import Measurement

_LONGEST = 4 * 2**20
_LIMITS = JsonLimits(size=_LONGEST)


def read_measurement(source: IO[str]) -> Measurement:
    """The last line of a file that is a measurement. `kubectl logs` prints progress before it.

    Raises:
        ClickException: There is none, or it is not valid.
    """
    lines = text_of(source, _LONGEST).splitlines()
    line = next((line for line in reversed(lines) if line.startswith('{"apiVersion":"pdinference.io/')), None)
    if line is None:
        raise click.ClickException(
            f"{source.name} has no measurement. The program of `pdinference calibrate measure` prints one as its last "
            "line; what it printed before says why there is none."
        )
    try:
        found: Any = loads(line.encode(), _LIMITS)
        return Measurement.model_validate(found)
    except BoundedJsonError as error:
        raise click.ClickException(f"{source.name}: the measurement {error}.") from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise click.ClickException(f"{source.name} is no measurement: {where}: {first['msg']}.") from None


def read_calibration(source: IO[str]) -> CalibrationFile:
    """The calibration in a file.

    Raises:
        ClickException: It is not YAML, or no calibration.
    """
    found = list(yaml_documents(source))
    if len(found) != 1:
        raise click.ClickException(f"{source.name} holds {len(found)} documents. Write a file with one calibration.")
    try:
        return load(found[0])
    except InvalidCalibrationError as error:
        raise click.ClickException(f"{source.name}: {error}") from None
