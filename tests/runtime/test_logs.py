"""The form of the operator's logs."""

import json
import logging
from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest

from pdinference.runtime.logs import configure
from pdinference.runtime.settings import OperatorSettings

_LOG = logging.getLogger("pdinference.test")
_WITH_REASON = {"namespace": "models", "resource": "llama", "reason": "Forbidden"}


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """Logs of later tests go where they went before."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    levels = {name: logging.getLogger(name).level for name in ("kopf", "aiohttp.access", "asyncio")}
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    for name, before in levels.items():
        logging.getLogger(name).setLevel(before)


def test_json_has_one_object_a_line_with_the_extra_fields(capsys: pytest.CaptureFixture[str]) -> None:
    configure(OperatorSettings())
    _LOG.warning("two\nlines", extra=_WITH_REASON)
    _LOG.debug("not at this level")
    (line,) = capsys.readouterr().err.splitlines()
    found = json.loads(line)
    assert datetime.fromisoformat(found.pop("time")).utcoffset() == timedelta(0)
    assert found == {"level": "WARNING", "logger": "pdinference.test", "message": "two\nlines", **_WITH_REASON}


def test_plain_text_ends_with_the_extra_fields(capsys: pytest.CaptureFixture[str]) -> None:
    configure(OperatorSettings(log_format="plain", log_level="debug"))
    _LOG.warning("not written", extra=_WITH_REASON)
    _LOG.debug("nothing else")
    first, second = capsys.readouterr().err.splitlines()
    assert datetime.fromisoformat(first.split()[0]).utcoffset() == timedelta(0)
    assert first.endswith("WARNING not written namespace=models resource=llama reason=Forbidden")
    assert second.endswith("DEBUG   nothing else")


@pytest.mark.parametrize(("level", "expected"), [("debug", ["WARNING", "ERROR"]), ("error", ["ERROR"])])
def test_of_kopf_warnings_and_errors_alone(capsys: pytest.CaptureFixture[str], level: str, expected: list[str]) -> None:
    configure(OperatorSettings.model_validate({"log_level": level}))
    for number in (logging.INFO, logging.WARNING, logging.ERROR):
        logging.getLogger("kopf").log(number, "said")
    assert [json.loads(line)["level"] for line in capsys.readouterr().err.splitlines()] == expected
