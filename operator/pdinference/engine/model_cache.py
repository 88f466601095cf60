"""A model that is downloaded once: where it lies, and what downloads, checks and inspects it."""

from typing import Any

from pdinference.api.names import Role
from pdinference.api.v1alpha1 import PDInference
from pdinference.api.v1alpha1.model import Model
from pdinference.api.v1alpha1.source import ModelSource
from pdinference.engine.arguments import to_argv
from pdinference.engine.command import Command, EnvironmentVariable, literal, secret_variable, variable

MODEL_MOUNT = "/models"
"""Where a volume with the model, or a cache of models, is mounted: by what downloads and by vLLM."""
LOOK = "look"
"""Task of the program that only looks at what somebody else put into a volume."""
_PROGRAM = ("pdinference", "model")
_HUB_VARIABLES = ("HF_ENDPOINT", "HF_HUB_", "HF_XET_", "MODELSCOPE_")
_NOT_PASSED = frozenset({"HF_HUB_OFFLINE", "HF_HUB_CACHE", "MODELSCOPE_CACHE"})
_CONFIG_FORMATS = ("auto", "hf", "mistral")
_NETWORK_VARIABLES = frozenset(
    {"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"}
)


def cached_path(model: Model) -> str | None:
    """Folder of the model within the pods; None when it is not cached.

    A branch and a tag are folders too: once downloaded, they stay what they were.
    """
    hub = model.source.hub
    if model.cache is None or hub is None:
        return None
    # A slash would put one revision into the folder of another; no revision has a percent sign.
    return f"{MODEL_MOUNT}/{_hub_name(model.source)}/{hub.repository}/{hub.revision.replace('/', '%2F')}"


def fetch_command(resource: PDInference, *, job: str | None = None) -> Command:
    """Download the model into the cache, unless it is there.

    Args:
        resource: A resource with a cache.
        job: Namespace and name of the Job to report to; None: report to nobody.
    """
    model = resource.spec.model
    options = {**_hub_options(model), "folder": cached_path(model), "job": job}
    return _command(resource, "fetch", {**options, **(_adapters(model) if job is not None else {})})


def check_command(resource: PDInference) -> Command:
    """Check that the whole model is in the cache, before vLLM loads it."""
    return _command(resource, "check", {"folder": cached_path(resource.spec.model)})


def look_command(resource: PDInference, role: Role, folder: str, field: str) -> Command:
    """Look at a model that somebody else put into a volume, before vLLM loads it.

    Args:
        resource: A resource whose model is on a volume.
        role: Whose vLLM; each may load in another way.
        folder: Where the pods have the model.
        field: Which field says so.
    """
    arguments = {**resource.spec.engine.args, **resource.spec.of(role).args}
    load_format = arguments.get("load-format")
    elsewhere = arguments.get("hf-config-path") or arguments.get("config-format", "auto") not in _CONFIG_FORMATS
    options = {
        "folder": folder,
        "field": field,
        "load-format": None if load_format is None else str(load_format),
        "config": False if elsewhere else None,
    }
    return _command(resource, LOOK, options)


def inspect_command(resource: PDInference, folder: str, *, job: str | None = None) -> Command:
    """Read what is known of the model, from the hub, or from a folder where a volume has it."""
    model = resource.spec.model
    where = _hub_options(model) if model.source.hub else {"folder": folder}
    return _command(resource, "inspect", {**where, **_adapters(model), "job": job})


def _command(resource: PDInference, task: str, options: dict[str, Any]) -> Command:
    arguments = to_argv({name: value for name, value in options.items() if value is not None})
    return Command(
        program=(*_PROGRAM, task),
        arguments=tuple(literal(argument) for argument in arguments),
        environment=tuple(_environment(resource)) if "repository" in options else (),
    )


def _adapters(model: Model) -> dict[str, str]:
    """The adapters to look at; no path has a comma."""
    adapters = model.lora.adapters if model.lora is not None else []
    return {"adapters": ",".join(adapter.path for adapter in adapters)} if adapters else {}


def _hub_options(model: Model) -> dict[str, Any]:
    hub = model.source.hub
    return {"hub": _hub_name(model.source), "repository": hub.repository, "revision": hub.revision} if hub else {}


def _hub_name(source: ModelSource) -> str:
    return "huggingFace" if source.hugging_face else "modelScope"


def _environment(resource: PDInference) -> list[EnvironmentVariable]:
    """The token; and of vLLM's environment, what is about hubs, mirrors and proxies."""
    source = resource.spec.model.source
    token = source.hugging_face.token_secret if source.hugging_face else None
    passed = {name: value for name, value in resource.spec.engine.env.items() if _is_about_network(name)}
    return [
        *([secret_variable("HF_TOKEN", token.name, token.key)] if token else []),
        *(variable(name, value) for name, value in passed.items()),
    ]


def _is_about_network(name: str) -> bool:
    return (name.startswith(_HUB_VARIABLES) and name not in _NOT_PASSED) or name.upper() in _NETWORK_VARIABLES
