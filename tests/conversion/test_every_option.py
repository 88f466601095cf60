"""Every option of vLLM becomes a field, goes into `args` or gets a remark, and renders to the same option again."""

from typing import Any

import pytest

from pdinference.api.names import Role
from pdinference.api.v1alpha1.engine import OWNED_ARGUMENTS, OWNED_ENVIRONMENT
from pdinference.api.validation import validated
from pdinference.checks.options import listed
from pdinference.checks.removed_options import REMOVED, REMOVED_SWITCHES
from pdinference.conversion import Conversion, Launch, convert
from pdinference.conversion.environment import TABLE as VARIABLES
from pdinference.conversion.left_out import as_sentence, reason_to_leave_out
from pdinference.conversion.options import parse_options
from pdinference.conversion.settings import TABLE
from pdinference.engine.refused import REFUSED_ENVIRONMENT
from pdinference.engine.vllm import engine_command

OPTIONS = listed()[1]
VALUES = {
    "int": ["3"],
    "float": ["0.5"],
    "text": ["word"],
    "count": ["4096"],
    "object": ['{"a": 1}'],
    "json": ['{"a": 1}'],
    "list": ["a", "b"],
    "optional": ["word"],
    "switch": [],
    "flag": [],
}
OF_OPTION = {
    "quantization": ["awq"],
    "max-model-len": ["4096"],
    "max-num-batched-tokens": ["4k"],
    "kv-cache-dtype": ["fp8"],
    "block-size": ["64"],
    "max-lora-rank": ["32"],
    "override-generation-config": ['{"top_k": 5}'],
    "lora-modules": ['{"name": "sql", "path": "/adapters/sql"}'],
    "served-model-name": ["served"],
    "shutdown-timeout": ["90"],
    "cpu-offload-gb": ["1.5"],
    "kv-offloading-size": ["8"],
    "compilation-config": ['{"level": 3}'],
    "kv-transfer-config": ['{"kv_connector": "MooncakeConnector", "kv_role": "kv_producer"}'],
    "model": ["owner/name"],
    "revision": ["abc"],
    "tokenizer-revision": ["abc"],
    "tokenizer": ["owner/tokenizer"],
    "chat-template": ["{{ messages }}"],
    "dtype": ["bfloat16"],
}
WITH = {
    "lora-modules": ["--enable-lora"],
    "max-lora-rank": ["--enable-lora"],
    "max-loras": ["--enable-lora"],
    "tokenizer-revision": ["--revision", "abc"],
    "nnodes": ["--pipeline-parallel-size", "3"],
    "kv-offloading-backend": ["--kv-offloading-size", "8"],
}
OF_OPERATOR = {"port", "kv-transfer-config", "kv-offloading-size", "kv-offloading-backend"}
"""Fields say these in another form."""


def command_line(name: str) -> tuple[str, ...]:
    form = OPTIONS[name]
    values = OF_OPTION.get(name) or VALUES.get(form) or ([] if form in VALUES else [form.split("|")[-1]])
    return (*(() if name == "model" else ("owner/name",)), f"--{name}", *values, *WITH.get(name, []))


def rendered(conversion: Conversion, role: Role) -> dict[str, Any]:
    resource = validated(conversion.document)
    options = parse_options(engine_command(resource, role).arguments, listed())
    return {**options.values, "model": options.positional[0]}


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_is_rendered_again_or_has_a_remark(name: str) -> None:
    arguments = command_line(name)
    conversion = convert(Launch(arguments), "x")
    if any(r.left_out and r.subject.startswith(f"--{name}") for r in conversion.remarks):
        return
    given = parse_options(arguments, listed()).values
    for role in (Role.PARAMETER, Role.DECODE):
        again = rendered(conversion, role)
        for option in given.keys() - OF_OPERATOR - (set() if role is Role.PARAMETER else {"nnodes"}):
            value = given[option]
            if option == "pipeline-parallel-size" and role is Role.DECODE:
                assert again["tensor-parallel-size"] == value
            elif option == "max-num-batched-tokens":
                assert again[option] == 4000
            elif value is not False or option in again:
                assert again[option] == value


def test_options_with_a_field_of_another_form_set_it() -> None:
    arguments = [word for name in sorted(OF_OPERATOR) for word in command_line(name)[1:]]
    spec = convert(Launch(("owner/name", *arguments)), "x").document["spec"]
    assert spec["router"]["service"]["port"] == 3
    assert spec["transfer"]["connector"] == "Mooncake"
    assert spec["parameter"]["kvTiers"] == spec["decode"]["kvTiers"] == {"cpu": {"size": "8Gi"}}


def test_an_owned_option_has_a_row_or_a_reason_of_its_own() -> None:
    """Where admission names a field ("use maxNumSeqs"), that field is set."""
    with_field = {name: why for name, why in OWNED_ARGUMENTS.items() if why.startswith("use ") and name not in TABLE}
    assert [name for name, why in with_field.items() if reason_to_leave_out(name) == as_sentence(why)] == []


def test_the_table_and_the_removed_options_agree_with_vllm() -> None:
    assert TABLE.keys() <= OPTIONS.keys()
    assert REMOVED.keys() & OPTIONS.keys() == set()
    assert REMOVED.keys() >= REMOVED_SWITCHES


@pytest.mark.parametrize("name", sorted({*OWNED_ENVIRONMENT, *REFUSED_ENVIRONMENT}))
def test_a_variable_that_is_refused_becomes_a_field_or_a_remark(name: str) -> None:
    conversion = convert(Launch(("owner/name",), {name: "1"}), "x")
    validated(conversion.document)
    assert name in VARIABLES or any(r.left_out and r.subject.startswith(name) for r in conversion.remarks)
