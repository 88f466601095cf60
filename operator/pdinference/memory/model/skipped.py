"""Modules that a quantised checkpoint does not quantise: names, and untrusted patterns.

Tests: tests/memory/weights/test_weights.py, tests/checks/test_memory.py
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import re2

_PATTERN = "re:"
_LARGEST_PROGRAM = 4000
"""Instructions of all patterns together, of which a usual pattern has 20. A module then takes 0.1 ms at most."""
_MOST_MEMORY = 1 << 20
"""Bytes for matching; beyond that RE2 takes its slower way, which needs none."""


class UnusablePatternError(ValueError):
    """The patterns cannot be matched in linear time; the message says why."""


@dataclass(frozen=True, slots=True)
class SkippedModules:
    """Which modules stay unquantised.

    Attributes:
        names: Names, or runs of whole parts of names.
        patterns: Regular expressions, matched from the beginning of a name.
    """

    names: frozenset[str] = frozenset()
    patterns: tuple[str, ...] = ()
    _expression: Any = field(default=None, compare=False, repr=False)
    _known: dict[str, bool] = field(default_factory=dict, compare=False, repr=False)

    def __contains__(self, module: str) -> bool:
        """Whether a module, for example `model.layers.0.mlp.gate_proj`, is among them.

        Source: `is_layer_skipped` in vllm/model_executor/layers/quantization/utils/quant_utils.py and
        `should_ignore_layer` of compressed_tensors/utils.py; a name matches whole parts, so that `gate` is not
        `gate_proj`.
        """
        known = self._known.get(module)
        if known is None:
            known = self._known[module] = self._is_named(module) or self._is_matched(module)
        return known

    def _is_named(self, module: str) -> bool:
        if not self.names:
            return False
        parts = module.split(".")
        ends = range(1, len(parts) + 1)
        return any(".".join(parts[first:end]) in self.names for end in ends for first in range(end))

    def _is_matched(self, module: str) -> bool:
        return self._expression is not None and self._expression.match(module) is not None


NONE_SKIPPED = SkippedModules()


def skipped_modules(entries: Iterable[str]) -> SkippedModules:
    """Read a list of names and of patterns (`re:` and a regular expression).

    Raises:
        UnusablePatternError: RE2 refuses a pattern, or they are too many to match quickly.
    """
    listed = tuple(entries)
    patterns = tuple(entry.removeprefix(_PATTERN) for entry in listed if entry.startswith(_PATTERN))
    names = frozenset(entry for entry in listed if not entry.startswith(_PATTERN))
    return SkippedModules(names, patterns, _compiled(patterns) if patterns else None)


def _compiled(patterns: tuple[str, ...]) -> Any:
    """All patterns in one expression, which takes linear time however they are written."""
    options = re2.Options()
    options.max_mem, options.log_errors, options.never_capture = _MOST_MEMORY, False, True
    try:
        expression = re2.compile("|".join(f"(?:{pattern})" for pattern in patterns), options)
    except re2.error as error:
        reason = error.args[0] if error.args else error
        said = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise UnusablePatternError(f"a pattern of modules cannot be used: {said}") from None
    finally:
        re2.purge()  # its cache would keep untrusted patterns
    if expression.programsize > _LARGEST_PROGRAM:
        raise UnusablePatternError("the patterns of modules are too large together")
    return expression
