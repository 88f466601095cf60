"""Converts environment variables of vLLM to fields of the resource.

Tests: tests/conversion/test_resource.py, tests/conversion/test_field_points.py, tests/conversion/test_every_option.py
"""

import re
from collections.abc import Callable, Iterator, Mapping

from pdinference.checks.secret_values import may_hold_secret
from pdinference.conversion.api_keys import VARIABLE, referred, secret_keys
from pdinference.conversion.launch import Finding, Launch, Remark, Unresolved
from pdinference.conversion.left_out import as_sentence
from pdinference.conversion.model_fields import HUB_TOKENS, token_settings, variables_of_bucket
from pdinference.conversion.options import REPLACED, ParsedOptions
from pdinference.engine.refused import DEVICE_ENVIRONMENT, refused_variable

Convert = Callable[[str, str], Iterator[Finding]]

_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_DEVICES = (
    "The device plug-in chooses the devices of each pod, as many as parallelism says. accelerator.products pins pods "
    "to GPU products, and accelerator.devices claims exact devices."
)
_CACHE = "Each pod has its own cache. spec.model.cache stores the model on a claim or on each node."
_MACHINE = "It is specific to this machine. The engine image sets its own value."
_ADDRESS = "The operator gives each pod its addresses and ports."
_GONE = "vLLM no longer has this variable."


def _left(text: str) -> Convert:
    def convert(name: str, value: str) -> Iterator[Finding]:
        yield Remark(f"{name}={value}", text)

    return convert


def _field(path: str) -> Convert:
    def convert(_name: str, value: str) -> Iterator[Finding]:
        yield path, value

    return convert


def _devices(name: str, value: str) -> Iterator[Finding]:
    number = len([device for device in value.split(",") if device.strip()])
    named = "all devices" if value == "all" else "1 device" if number == 1 else f"{number} devices"
    yield Remark(f"{name}={value}", f"It names {named} of one machine. {_DEVICES}")


def _log_level(_name: str, value: str) -> Iterator[Finding]:
    if value.upper() not in {"DEBUG", "INFO", "WARNING", "ERROR"}:
        raise ValueError("logLevel takes DEBUG, INFO, WARNING and ERROR.")
    yield "both.logLevel", value.upper()


def _partition(_name: str, value: str) -> Iterator[Finding]:
    layers = value.split(",")
    if not all(re.fullmatch(r"\d{1,4}", each, re.ASCII) for each in layers):
        raise ValueError("This is not a list of layer counts such as 24,8.")
    yield "role.parallelism.layerPartition", [int(each) for each in layers]


def _adapters_at_run_time(_name: str, value: str) -> Iterator[Finding]:
    if value.strip().lower() in {"1", "true"}:
        yield "model.lora.dynamicLoading", True


def _nothing(_name: str, _value: str) -> Iterator[Finding]:
    """No finding: the variable is read with the source of the model."""
    yield from ()


TABLE: Mapping[str, Convert] = {
    **dict.fromkeys(DEVICE_ENVIRONMENT, _devices),
    **dict.fromkeys(
        ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "TRANSFORMERS_CACHE", "MODELSCOPE_CACHE"), _left(_CACHE)
    ),
    **dict.fromkeys(
        ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"),
        _left("The operator sets it where the pods have the model before vLLM starts. A hub needs the network."),
    ),
    **dict.fromkeys(
        ("PATH", "HOME", "USER", "PWD", "PYTHONPATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "CUDA_HOME"),
        _left(_MACHINE),
    ),
    **dict.fromkeys(("VLLM_HOST_IP", "VLLM_PORT", "MASTER_ADDR", "MASTER_PORT"), _left(_ADDRESS)),
    **dict.fromkeys(("CUDA_DEVICE_ORDER", "ONEAPI_DEVICE_SELECTOR"), _left(_DEVICES)),
    "VLLM_USE_V1": _left(_GONE),
    "VLLM_USE_MODELSCOPE": _nothing,
    "VLLM_ATTENTION_BACKEND": _field("both.args.attention-backend"),
    "VLLM_LOGGING_LEVEL": _log_level,
    "VLLM_PP_LAYER_PARTITION": _partition,
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": _adapters_at_run_time,
    "LMCACHE_REMOTE_URL": _nothing,
}


def environment_settings(options: ParsedOptions, launch: Launch) -> Iterator[Finding]:
    """Findings for all variables, including variables from Secrets."""
    if name := next((name for name in HUB_TOKENS if name in launch.secrets or name in launch.environment), None):
        yield from token_settings(options, launch, name)
    with_source = variables_of_bucket(options, launch)
    for name in launch.secrets:
        if name in with_source:
            continue
        if name == VARIABLE:
            yield from secret_keys(name, name, launch)
        elif name not in HUB_TOKENS and name not in _option_secrets(options):
            yield Remark(name, _why_left_out(name))
    for name, value in launch.environment.items():
        if name not in HUB_TOKENS and name not in with_source:
            yield from _variable(name, value)


def _variable(name: str, value: str) -> Iterator[Finding]:
    if name not in TABLE and (refused_variable(name) or may_hold_secret(name, value)):
        yield Remark(name, _why_left_out(name))
    elif isinstance(value, Unresolved):
        yield Remark(f"{name}={value}", REPLACED)
    elif _NAME.fullmatch(name) is None:
        yield Remark(name, "No container can have a variable of this name in a resource.")
    elif convert := TABLE.get(name):
        try:
            yield from convert(name, value)
        except ValueError as error:
            yield Remark(f"{name}={value}", str(error))
    else:
        yield f"both.env.{name}", value


def _option_secrets(options: ParsedOptions) -> set[str]:
    """Variables of which an option made use."""
    keys = options.values.get("api-key")
    return {referred(str(key)) for key in keys} if isinstance(keys, list) else set()


def _why_left_out(name: str) -> str:
    """The reason to leave out a variable that is refused or is a secret."""
    why = refused_variable(name)
    if why is not None:
        return as_sentence(why)
    return "A resource holds no secrets. Take it from a Secret by podTemplate of both roles (env.valueFrom)."
