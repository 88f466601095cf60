"""Logs: one JSON object per line, or plain text."""

import logging
import sys
import time

from pythonjsonlogger.json import JsonFormatter

from pdinference.runtime.settings import OperatorSettings

_FIELDS = "%(asctime)s %(levelname)s %(name)s %(message)s"
_NOISY = ("kopf", "aiohttp.access", "asyncio")


class _PlainFormatter(logging.Formatter):
    """Appends the extra fields that the JSON form shows as keys."""

    _KEYS = ("namespace", "resource", "revision", "reason")

    def format(self, record: logging.LogRecord) -> str:
        extras = " ".join(f"{key}={getattr(record, key)}" for key in self._KEYS if hasattr(record, key))
        return f"{super().format(record)} {extras}".rstrip()


def configure(settings: OperatorSettings) -> None:
    """Send all logs to stderr in the chosen format; of Kopf's logs only warnings and errors."""
    handler = logging.StreamHandler(sys.stderr)
    formatter: logging.Formatter = (
        JsonFormatter(_FIELDS, rename_fields={"asctime": "time", "levelname": "level", "name": "logger"})
        if settings.log_format == "json"
        else _PlainFormatter("%(asctime)s %(levelname)-7s %(message)s")
    )
    # RFC 3339 in UTC, which collectors of logs parse without a rule of their own.
    formatter.converter = time.gmtime
    formatter.default_time_format, formatter.default_msec_format = "%Y-%m-%dT%H:%M:%S", "%s.%03dZ"
    handler.setFormatter(formatter)
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler], force=True)
    for name in _NOISY:
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLogger().level))
