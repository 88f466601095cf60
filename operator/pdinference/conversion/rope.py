"""Converts vLLM's former options for RoPE to `hf-overrides`.

vLLM sets an object of `hf-overrides` in place of the one in the model's config (`ModelConfig._apply_dict_overrides`),
and transformers 5 reads the base from it. `rope_scaling` without `rope_theta`, or `rope_theta` beside it, has no base.

Tests: tests/conversion/test_field_points.py
"""

from collections.abc import Iterator
from typing import Any

from pdinference.conversion.launch import Finding, Remark
from pdinference.conversion.options import ParsedOptions, member_value

OVERRIDES = "hf-overrides"
_NO_THETA = (
    "It became hf-overrides, which replaces rope_parameters of the model's config as a whole. Add rope_theta, with "
    "the value in the model's config.json, to rope_parameters."
)
_NO_SCALING = (
    "It became hf-overrides, which replaces rope_parameters of the model's config as a whole. If config.json has "
    "other members there (or in rope_scaling), add them."
)


def rope_settings(options: ParsedOptions) -> Iterator[Finding]:
    """The overrides of `--rope-scaling` and `--rope-theta`, together with other overrides."""
    given = options.rope
    if not given:
        return
    values = {name: member_value(values[0]) if values else None for name, values in given.items()}
    scaling, theta = values.get("rope-scaling"), values.get("rope-theta")
    if ("rope-scaling" in given and not isinstance(scaling, dict)) or ("rope-theta" in given and not _number(theta)):
        wrong = "--rope-scaling" if "rope-scaling" in given and not isinstance(scaling, dict) else "--rope-theta"
        yield Remark(f"{wrong} {' '.join(given[wrong[2:]])}", "This value is not valid. See hf-overrides.")
        return
    parameters = {"rope_type" if name == "type" else name: value for name, value in (scaling or {}).items()}
    parameters |= {} if theta is None else {"rope_theta": theta}
    parameters = parameters if "rope_type" in parameters else {**parameters, "rope_type": "default"}
    before = options.values.get(OVERRIDES)
    yield f"both.args.{OVERRIDES}", {**(before if isinstance(before, dict) else {}), "rope_parameters": parameters}
    subject = " ".join(f"--{name} {' '.join(words)}" for name, words in given.items())
    if "rope_theta" not in parameters:
        yield Remark(subject, _NO_THETA, left_out=False)
    elif scaling is None:
        yield Remark(subject, _NO_SCALING, left_out=False)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
