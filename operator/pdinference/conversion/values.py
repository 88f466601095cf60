"""Parses numbers and objects in the forms of vLLM's options.

Tests: tests/conversion/test_vllm_parser.py, tests/conversion/test_resource.py, tests/conversion/test_field_points.py
"""

import re
from decimal import Decimal
from typing import Any

_COUNT = re.compile(r"(\d{1,12})(?:\.(\d{1,9}))?([kKmMgGtT]?)", re.ASCII)
_SIZE = re.compile(r"\d{1,9}(\.\d{1,6})?", re.ASCII)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def count(value: Any) -> int:
    """A whole number such as 4096, 4k (4,000) or 4K (4,096); source: vllm/utils/argparse_utils.py.

    Raises:
        ValueError: It is not a number. `auto` and -1 mean vLLM's default, like a resource without the field.
    """
    match = _COUNT.fullmatch(str(value))
    if match is None:
        raise ValueError("This is not a number of tokens. Without the field, vLLM chooses.")
    whole, fraction, unit = match.groups()
    base = 1024 if unit.isupper() else 1000
    number = Decimal(f"{whole}.{fraction or 0}") * base ** _POWERS[unit.lower()]
    if fraction and (unit.isupper() or number != int(number)):
        raise ValueError("This is not an integer.")
    return int(number)


def gib(value: Any) -> str:
    """A quantity from a number of GiB, which vLLM calls GB.

    Raises:
        ValueError: It is not a number.
    """
    text = str(value)
    if _SIZE.fullmatch(text) is None:
        raise ValueError("This is not a size in GiB.")
    return f"{text.removesuffix('.0')}Gi"


def json_object(value: Any) -> dict[str, Any]:
    """A JSON object.

    Raises:
        ValueError: It is not an object.
    """
    if not isinstance(value, dict):
        raise ValueError("This is not a JSON object.")  # noqa: TRY004 - an error in the user's text
    return value


def bytes_quantity(number: int) -> str:
    """A quantity from a number of bytes, in the largest unit without a fraction."""
    units = ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10)
    unit, size = next(((name, size) for name, size in units if number % size == 0), ("", 1))
    return f"{number // size}{unit}"
