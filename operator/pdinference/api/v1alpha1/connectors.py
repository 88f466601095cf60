"""What the connectors of `spec.transfer` cannot do, as read in vLLM's source (vllm/distributed/kv_transfer).

NIXL's own rules on parallelism stand with the spec and hold for all connectors.
"""

from typing import Any

from pdinference.api.v1alpha1.base import Rule

_STORES = ("LMCache", "SharedStorage")
"""Connectors that keep KV cache under the shape of the rank that wrote it."""


def _not_enabled(option: str) -> str:
    """CEL for an option that is switched on for no role."""
    parts = ("self.engine", "self.parameter", "self.decode")
    return " && ".join(f"(!has({part}.{option}) || !{part}.{option})" for part in parts)


def _devices(spec: Any) -> set[str]:
    return {spec.parameter.accelerator.type, spec.decode.accelerator.type}


def _shape(spec: Any) -> set[tuple[int, int]]:
    return {(role.parallelism.tensor, role.parallelism.pipeline) for role in (spec.parameter, spec.decode)}


CONNECTOR_RULES: tuple[Rule, ...] = (
    Rule(
        # Others expect all ranks of P at one address; tiers hold what the ranks of one pod share.
        cel="self.parameter.parallelism.nodes == 1 "
        "|| (self.transfer.connector == 'Nixl' && !has(self.parameter.kvTiers))",
        holds=lambda s: (
            s.parameter.parallelism.nodes == 1 or (s.transfer.connector == "Nixl" and s.parameter.kv_tiers is None)
        ),
        field="parameter.parallelism.nodes",
        message="An instance of several nodes goes with transfer.connector Nixl and without parameter.kvTiers only.",
    ),
    Rule(
        # MultiConnector hands the addresses of all stages to each of its connectors; vLLM's offloading refuses them.
        cel="self.transfer.connector != 'Nixl' || self.parameter.parallelism.pipeline == 1 "
        "|| !has(self.parameter.kvTiers)",
        holds=lambda s: (
            s.transfer.connector != "Nixl" or s.parameter.parallelism.pipeline == 1 or s.parameter.kv_tiers is None
        ),
        field="parameter.kvTiers",
        message="Leave them out with parameter.parallelism.pipeline above 1: with tiers, vLLM hands no KV cache over "
        "from pipeline stages by Nixl.",
    ),
    Rule(
        cel="self.transfer.connector == 'Nixl' || (self.parameter.accelerator.type == self.decode.accelerator.type "
        "&& (self.transfer.connector == 'SharedStorage' || self.decode.accelerator.type == 'GPU'))",
        holds=lambda s: (
            s.transfer.connector == "Nixl"
            or _devices(s) == {"GPU"}
            or (s.transfer.connector == "SharedStorage" and _devices(s) == {"CPU"})
        ),
        field="transfer.connector",
        message="Use Nixl with accelerator type CPU: Mooncake and LMCache know GPUs only, and SharedStorage moves no "
        "KV cache between a GPU and a CPU.",
    ),
    Rule(
        cel=f"!(self.transfer.connector in {list(_STORES)}) "
        "|| (self.parameter.parallelism.tensor == self.decode.parallelism.tensor "
        "&& self.parameter.parallelism.pipeline == 1)",
        holds=lambda s: s.transfer.connector not in _STORES or _shape(s) == {(s.decode.parallelism.tensor, 1)},
        field="parameter.parallelism",
        message="LMCache and SharedStorage keep KV cache as each rank wrote it: give P and D the same tensor, and P no "
        "pipeline.",
    ),
    Rule(
        # example_connector.py names files by layer, so that ranks would overwrite each other's.
        cel="self.transfer.connector != 'SharedStorage' || self.decode.parallelism.tensor == 1",
        holds=lambda s: s.transfer.connector != "SharedStorage" or s.decode.parallelism.tensor == 1,
        field="decode.parallelism.tensor",
        message="Use 1: SharedStorage writes one file for each layer, whichever rank it comes from.",
    ),
    Rule(
        # It stores what one step of the engine holds, from the first token on.
        cel="self.transfer.connector != 'SharedStorage' || "
        f"({_not_enabled('enablePrefixCaching')} && {_not_enabled('enableChunkedPrefill')})",
        holds=lambda s: (
            s.transfer.connector != "SharedStorage"
            or not any(
                options.enable_prefix_caching or options.enable_chunked_prefill
                for options in (s.engine, s.parameter, s.decode)
            )
        ),
        field="transfer.connector",
        message="SharedStorage works without prefix caching and chunked prefill only, and the operator turns both off; "
        "remove enablePrefixCaching and enableChunkedPrefill.",
    ),
    Rule(
        cel=f"!(self.transfer.connector in {list(_STORES)}) "
        "|| (!has(self.parameter.kvTiers) && !has(self.decode.kvTiers))",
        holds=lambda s: s.transfer.connector not in _STORES or not (s.parameter.kv_tiers or s.decode.kv_tiers),
        field="transfer.connector",
        message="Tiers go with Nixl and Mooncake; LMCache has tiers of its own, SharedStorage has none.",
    ),
)
