"""Cached models: their path, and the commands that download, check and inspect them.

Tests: tests/manifests/test_model_preparation.py
"""

from typing import Any

from pdinference.api.names import Role
from pdinference.api.v1alpha1 import PDInference
from pdinference.api.v1alpha1.model import Model
from pdinference.api.v1alpha1.source import BucketSource, ModelSource
from pdinference.engine.arguments import to_argv
from pdinference.engine.command import Command, EnvironmentVariable, literal, secret_variable, variable

MODEL_MOUNT = "/models"
"""Mount path of a volume with the model or the model cache, in the download and in vLLM."""
BUCKET = "bucket"
"""What `--hub` calls a bucket, and its folder in a cache."""
LOOK = "look"
"""Subcommand that checks a model on a user's volume."""
_PROGRAM = ("pdinference", "model")
_HUB_VARIABLES = ("HF_ENDPOINT", "HF_HUB_", "HF_XET_", "MODELSCOPE_")
_NOT_PASSED = frozenset({"HF_HUB_OFFLINE", "HF_HUB_CACHE", "MODELSCOPE_CACHE"})
_CONFIG_FORMATS = ("auto", "hf", "mistral")
_NETWORK_VARIABLES = frozenset(
    {"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"}
)


def cached_path(model: Model) -> str | None:
    """Folder of the model in the pods; None if it is not cached.

    Branches, tags and folders of buckets have folders, too. A downloaded model does not change when they do.
    """
    hub, bucket = model.source.hub, model.source.bucket
    if model.cache is None:
        return None
    if bucket is not None:
        # The digest keeps apart what two servers have under one name. No folder is within that of another model.
        return f"{MODEL_MOUNT}/{BUCKET}/{bucket.uri.rpartition('/')[2]}-{model.source.identity()}"
    if hub is None:
        return None
    # A slash could nest the folder of one revision in that of another. Revisions do not contain percent signs.
    return f"{MODEL_MOUNT}/{_hub_name(model.source)}/{hub.repository}/{hub.revision.replace('/', '%2F')}"


def fetch_command(resource: PDInference, *, job: str | None = None) -> Command:
    """Command that downloads the model into the cache unless it is there.

    Args:
        resource: A resource with a cache.
        job: Namespace and name of the Job for progress reports; None for no reports.
    """
    model = resource.spec.model
    options = {**_remote_options(model), "folder": cached_path(model), "job": job}
    return _command(resource, "fetch", {**options, **(_adapters(model) if job is not None else {})})


def check_command(resource: PDInference) -> Command:
    """Command that checks, before vLLM starts, whether the cache has the complete model."""
    return _command(resource, "check", {"folder": cached_path(resource.spec.model)})


def look_command(resource: PDInference, role: Role, folder: str, field: str) -> Command:
    """Command that checks a model on a user's volume before vLLM starts.

    Args:
        resource: A resource whose model is on a volume.
        role: The role of the pods. The roles may have different load formats.
        folder: Folder of the model in the pods.
        field: Field of the spec with this folder.
    """
    arguments = {**resource.spec.engine.args, **resource.spec.of(role).args}
    load_format = arguments.get("load-format", resource.spec.model.load_format)
    elsewhere = arguments.get("hf-config-path") or arguments.get("config-format", "auto") not in _CONFIG_FORMATS
    options = {
        "folder": folder,
        "field": field,
        "load-format": None if load_format is None else str(load_format),
        "config": False if elsewhere else None,
    }
    return _command(resource, LOOK, options)


def inspect_command(resource: PDInference, folder: str, *, job: str | None = None) -> Command:
    """Command that collects facts about the model from its hub or bucket, or from a folder on a volume."""
    model = resource.spec.model
    where = _remote_options(model) or {"folder": folder}
    return _command(resource, "inspect", {**where, **_adapters(model), "job": job})


def _command(resource: PDInference, task: str, options: dict[str, Any]) -> Command:
    arguments = to_argv({name: value for name, value in options.items() if value is not None})
    return Command(
        program=(*_PROGRAM, task),
        arguments=tuple(literal(argument) for argument in arguments),
        environment=tuple(_environment(resource)) if "repository" in options else (),
    )


def _adapters(model: Model) -> dict[str, str]:
    """The option with the adapters to inspect. Paths do not contain commas."""
    adapters = model.lora.adapters if model.lora is not None else []
    return {"adapters": ",".join(adapter.path for adapter in adapters)} if adapters else {}


def _remote_options(model: Model) -> dict[str, Any]:
    hub, bucket = model.source.hub, model.source.bucket
    if bucket is not None:
        return {"hub": BUCKET, "repository": bucket.uri, "endpoint": bucket.endpoint, "region": bucket.region}
    return {"hub": _hub_name(model.source), "repository": hub.repository, "revision": hub.revision} if hub else {}


def _hub_name(source: ModelSource) -> str:
    return "huggingFace" if source.hugging_face else "modelScope"


def _environment(resource: PDInference) -> list[EnvironmentVariable]:
    """The credentials, and the variables of vLLM that configure hubs, mirrors and proxies."""
    source = resource.spec.model.source
    token = source.hugging_face.token_secret if source.hugging_face else None
    passed = {name: value for name, value in resource.spec.engine.env.items() if _is_about_network(name)}
    return [
        *([secret_variable("HF_TOKEN", token.name, token.key)] if token else []),
        *(bucket_credentials(source.bucket) if source.bucket else []),
        *(variable(name, value) for name, value in passed.items()),
    ]


def bucket_credentials(bucket: BucketSource) -> list[EnvironmentVariable]:
    """Variables with the credentials for a bucket."""
    return [secret_variable(signed.key, signed.name, signed.key) for signed in bucket.signed]


def _is_about_network(name: str) -> bool:
    return (name.startswith(_HUB_VARIABLES) and name not in _NOT_PASSED) or name.upper() in _NETWORK_VARIABLES
