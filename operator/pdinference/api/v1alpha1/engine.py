"""`spec.engine` and the per-role additions to it: the image, and every vLLM option that has no field of its own."""

from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, WithJsonSchema

from pdinference.api.v1alpha1.base import ApiModel, ImageReference, Rule

OWNED_ARGUMENTS: dict[str, str] = {
    "model": "spec.model.source",
    "revision": "spec.model.source.huggingFace.revision",
    "tokenizer-revision": "spec.model.source.huggingFace.revision",
    "hf-token": "spec.model.source.huggingFace.tokenSecret",
    "served-model-name": "spec.model.name",
    "tensor-parallel-size": "spec.parameter.parallelism.tensor and spec.decode.parallelism.tensor",
    "kv-transfer-config": "spec.transfer",
    "host": "nothing: pods listen on every address, and a NetworkPolicy limits who reaches them",
    "port": "spec.router.service.port",
    "shutdown-timeout": "spec.rollout.drainSeconds",
    "config": "spec.engine.args",
}
"""vLLM options that the operator sets itself, each with the field to use instead."""

OWNED_ENVIRONMENT: dict[str, str] = {
    "POD_IP": "nothing: it is the pod's own address",
    "VLLM_NIXL_SIDE_CHANNEL_HOST": "nothing: it has to be the pod's own address",
    "VLLM_NIXL_SIDE_CHANNEL_PORT": "nothing: the port is part of the NetworkPolicy",
    "VLLM_SERVER_DEV_MODE": "nothing: it opens endpoints that reset and control the engine",
    "HF_TOKEN": "spec.model.source.huggingFace.tokenSecret",
    "VLLM_API_KEY": "nothing yet: a key in plain text would be readable to all who can read the resource",
}
"""Environment variables that the operator sets itself or refuses, each with the field to use instead."""


def _use_instead(owned: dict[str, str]) -> str:
    return "; ".join(
        f"{name} (use {field})" if field.startswith("spec") else f"{name} ({field})" for name, field in owned.items()
    )


def _cel_list(names: dict[str, str]) -> str:
    return "[" + ", ".join(f"'{name}'" for name in names) + "]"


def _scalar_or_json(value: object) -> object:
    if value is None:
        raise ValueError("null is not a value; leave the option out, or use true or false for a switch.")
    return value


ArgumentName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9]*(-[a-z0-9]+)*$", max_length=63)]
ArgumentValue = Annotated[
    Any,
    BeforeValidator(_scalar_or_json),
    WithJsonSchema({"x-kubernetes-preserve-unknown-fields": True}),
]
"""Text, number, true (`--name`), false (`--no-name`), a list (`--name a b`) or an object (passed as JSON)."""

Arguments = Annotated[dict[ArgumentName, ArgumentValue], Field(max_length=64)]
EnvironmentName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=128)]
Environment = Annotated[dict[EnvironmentName, Annotated[str, Field(max_length=4096)]], Field(max_length=64)]

_ARGUMENT_NAMES = r"self.args.all(name, name.matches('^[a-z][a-z0-9]*(-[a-z0-9]+)*$'))"
_ENVIRONMENT_NAMES = r"self.env.all(name, name.matches('^[A-Za-z_][A-Za-z0-9_]*$'))"


class EngineOptions(ApiModel):
    """vLLM options and environment for one role; they win over those of `spec.engine`."""

    args: Arguments = Field(default_factory=dict)
    """vLLM options by their long name without dashes, for example `max-num-seqs: 64` or `enforce-eager: true`. A list
    becomes several values, an object becomes JSON, false becomes `--no-<name>`."""
    env: Environment = Field(default_factory=dict)
    """Environment variables of the vLLM container, for example `NCCL_DEBUG: INFO`. For secrets, use a field that takes
    a Secret reference."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel=f"!has(self.args) || {_ARGUMENT_NAMES}",
            holds=lambda _: True,  # the type of the keys says it in Python
            message="args: write option names in lower case with single dashes between words and none in front, "
            "for example max-num-seqs.",
        ),
        Rule(
            cel=f"!has(self.args) || !self.args.exists(name, name in {_cel_list(OWNED_ARGUMENTS)})",
            holds=lambda o: not OWNED_ARGUMENTS.keys() & o.args.keys(),
            message=f"args: the operator sets these options itself: {_use_instead(OWNED_ARGUMENTS)}.",
        ),
        Rule(
            cel=f"!has(self.env) || {_ENVIRONMENT_NAMES}",
            holds=lambda _: True,  # likewise
            message="env: names consist of letters, digits and underscores and do not start with a digit.",
        ),
        Rule(
            cel=f"!has(self.env) || !self.env.exists(name, name in {_cel_list(OWNED_ENVIRONMENT)})",
            holds=lambda o: not OWNED_ENVIRONMENT.keys() & o.env.keys(),
            message=f"env: the operator sets or refuses these variables: {_use_instead(OWNED_ENVIRONMENT)}.",
        ),
    )


class Engine(EngineOptions):
    """vLLM, for both roles; one image, because different versions can fail the KV-transfer handshake."""

    image: ImageReference = "docker.io/vllm/vllm-openai:v0.32.0"
    """Image with vLLM, its OpenAI-compatible server and NIXL. For CPU, build images/vllm-cpu."""
