"""Rules between `spec.transfer.connector` and the rest of the spec, generated from the limits in connectors.py.

Tests: tests/api/test_validation.py, tests/integration/test_crd.py
"""

from collections.abc import Callable
from typing import Any

from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.api.v1alpha1.base import Rule
from pdinference.api.v1alpha1.connectors import LIMITS, ConnectorLimits, ConnectorName


def _with(holds: Callable[[ConnectorLimits], object]) -> list[ConnectorName]:
    return [name for name, limits in LIMITS.items() if holds(limits)]


def _is(names: list[ConnectorName]) -> str:
    """CEL expression: the connector is one of these."""
    (first, *rest) = names
    return f"self.transfer.connector in {names}" if rest else f"self.transfer.connector == '{first}'"


def _is_not(names: list[ConnectorName]) -> str:
    (first, *rest) = names
    return f"!({_is(names)})" if rest else f"self.transfer.connector != '{first}'"


def _words(names: list[ConnectorName], verb: str = "") -> str:
    """The names for a sentence, with a verb in the right number."""
    words = " and ".join(names)
    return f"{words} {verb}{'s' if len(names) == 1 else ''}" if verb else words


def _not_enabled(option: str) -> str:
    """CEL expression: the option is not enabled for any role."""
    parts = ("self.engine", "self.parameter", "self.decode")
    return " && ".join(f"(!has({part}.{option}) || !{part}.{option})" for part in parts)


def _devices(spec: Any) -> set[str]:
    return {spec.parameter.accelerator.type, spec.decode.accelerator.type}


def _accelerators_match(spec: Any) -> bool:
    allowed = LIMITS[spec.transfer.connector].accelerators
    return allowed == "Any" or _devices(spec) == {"GPU"} or (allowed == "Same" and _devices(spec) == {"CPU"})


def _shape(spec: Any) -> set[tuple[int, int]]:
    return {(role.parallelism.tensor, role.parallelism.pipeline) for role in (spec.parameter, spec.decode)}


def _enables_steps(spec: Any) -> bool:
    return any(
        options.enable_prefix_caching or options.enable_chunked_prefill
        for options in (spec.engine, spec.parameter, spec.decode)
    )


_SEVERAL_NODES = _with(lambda limits: limits.several_nodes)
_STAGED_TIERS = _with(lambda limits: limits.without_staged_tiers)
_ANY_DEVICES = _with(lambda limits: limits.accelerators == "Any")
_SAME_DEVICES = _with(lambda limits: limits.accelerators == "Same")
_GPUS_ONLY = _with(lambda limits: limits.accelerators == "GPU")
_RANK_SHAPED = _with(lambda limits: limits.rank_shaped)
_ONE_RANK = _with(lambda limits: limits.one_rank)
_ONE_STEP = _with(lambda limits: limits.one_step)
_TIERS = _with(lambda limits: not limits.without_tiers)
_NO_TIERS = _with(lambda limits: limits.without_tiers)


def may_span_nodes(spec: Any, role: Role) -> bool:
    """Whether connector and tiers allow instances on several nodes.

    Other connectors expect all ranks of an instance at one address. The ranks of one pod share its tiers.
    """
    return LIMITS[spec.transfer.connector].several_nodes and spec.of(role).kv_tiers is None


def _several_nodes(role: Role) -> Rule:
    return Rule(
        cel=f"self.{role}.parallelism.nodes == 1 || ({_is(_SEVERAL_NODES)} && !has(self.{role}.kvTiers))",
        holds=lambda s: s.of(role).parallelism.nodes == 1 or may_span_nodes(s, role),
        field=f"{role}.parallelism.nodes",
        message=f"Use 1, or transfer.connector {_words(_SEVERAL_NODES)} without {role}.kvTiers.",
    )


CONNECTOR_RULES: tuple[Rule, ...] = (
    *map(_several_nodes, ENGINE_ROLES),
    Rule(
        cel=f"{_is_not(_STAGED_TIERS)} || self.parameter.parallelism.pipeline == 1 || !has(self.parameter.kvTiers)",
        holds=lambda s: (
            not LIMITS[s.transfer.connector].without_staged_tiers
            or s.parameter.parallelism.pipeline == 1
            or s.parameter.kv_tiers is None
        ),
        field="parameter.kvTiers",
        message="Remove kvTiers, or set parameter.parallelism.pipeline to 1: vLLM cannot combine tiers and the KV "
        f"transfer from pipeline stages by {_words(_STAGED_TIERS)}.",
    ),
    Rule(
        cel=f"{_is(_ANY_DEVICES)} || (self.parameter.accelerator.type == self.decode.accelerator.type "
        f"&& ({_is(_SAME_DEVICES)} || self.decode.accelerator.type == 'GPU'))",
        holds=_accelerators_match,
        field="transfer.connector",
        message=f"Use {_words(_ANY_DEVICES)} with accelerator type CPU: {_words(_GPUS_ONLY, 'support')} GPUs only, and "
        f"{_words(_SAME_DEVICES, 'need')} the same accelerator type for P and D.",
    ),
    Rule(
        cel=f"{_is_not(_RANK_SHAPED)} || (self.parameter.parallelism.tensor == self.decode.parallelism.tensor "
        "&& self.parameter.parallelism.pipeline == 1)",
        holds=lambda s: not LIMITS[s.transfer.connector].rank_shaped or _shape(s) == {(s.decode.parallelism.tensor, 1)},
        field="parameter.parallelism",
        message=f"{_words(_RANK_SHAPED, 'need')} the same ranks in P and D. Set the same parallelism.tensor for both, "
        "and a parallelism.pipeline of 1.",
    ),
    Rule(
        cel=f"{_is_not(_ONE_RANK)} || self.decode.parallelism.tensor == 1",
        holds=lambda s: not LIMITS[s.transfer.connector].one_rank or s.decode.parallelism.tensor == 1,
        field="decode.parallelism.tensor",
        message=f"Use 1: {' '.join(LIMITS[name].one_rank for name in _ONE_RANK)}",
    ),
    Rule(
        cel=f"{_is_not(_ONE_STEP)} || "
        f"({_not_enabled('enablePrefixCaching')} && {_not_enabled('enableChunkedPrefill')})",
        holds=lambda s: not LIMITS[s.transfer.connector].one_step or not _enables_steps(s),
        field="transfer.connector",
        message=f"{_words(_ONE_STEP, 'support')} neither prefix caching nor chunked prefill, and the operator disables "
        "both. Remove enablePrefixCaching and enableChunkedPrefill.",
    ),
    Rule(
        cel=f"{_is_not(_NO_TIERS)} || (!has(self.parameter.kvTiers) && !has(self.decode.kvTiers))",
        holds=lambda s: (
            not LIMITS[s.transfer.connector].without_tiers or not (s.parameter.kv_tiers or s.decode.kv_tiers)
        ),
        field="transfer.connector",
        message=f"kvTiers need connector {_words(_TIERS).replace(' and ', ' or ')}; "
        f"{', '.join(LIMITS[name].without_tiers for name in _NO_TIERS)}. Remove kvTiers or change the connector.",
    ),
)
