"""Converts the model of a command line: its source, name, chat template and adapters.

Tests: tests/conversion/test_resource.py, tests/conversion/test_containers.py, tests/conversion/test_field_points.py
"""

import re
from collections.abc import Iterator
from shlex import quote
from typing import Any

from pdinference.api.v1alpha1.source import CREDENTIALS, SEGMENT, configures_bucket
from pdinference.checks.options import is_official
from pdinference.conversion.launch import ConversionError, Finding, Folder, Launch, Remark, Unresolved
from pdinference.conversion.options import ParsedOptions, why_unresolved
from pdinference.memory.model.architectures import LAST_VERSIONS

_REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,95}/[A-Za-z0-9][A-Za-z0-9_.-]{0,95}")
_FOLDER = re.compile(f"(/{SEGMENT})+")
_MODEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./:-]*")
_KEY = re.compile(r"[A-Za-z0-9._-]{1,253}")
HUB_TOKENS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
"""Variables with the access token for the Hugging Face hub."""
_VOLUMES = {"persistentVolumeClaim": "claimName", "image": "reference"}
"""Sources of a model that are mounted, with the member that names each."""
_SUPERFLUOUS = "This is neither an option nor the model. vLLM would reject it."
_GGUF = re.compile(r"[-_.]gguf\b", re.IGNORECASE)
_GGUF_TYPE = re.compile(r"(UD-)?(I?Q\d\w*|TQ\d\w*|B?F16|F32)", re.IGNORECASE)
GGUF = (
    "vLLM reads no GGUF weights by itself: that is the package vllm-gguf-plugin, which its image does not have. The "
    "operator does not download .gguf files from a hub, and was not tested with them. Use the repository of the same "
    "model with safetensors (FP8, AWQ or GPTQ for few bits)."
)
CONFIG_MAP = "chat-template"
HUB_SECRET = "hugging-face"  # noqa: S105 - the name of a Secret
BUCKET_SECRET = "bucket"  # noqa: S105 - the same
BUCKET_VARIABLES = {
    "endpoint": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "RUNAI_STREAMER_S3_ENDPOINT"),
    "region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
}
"""Variables of the clients of a bucket, by the member of the source that has the value."""
_UNSIGNED = "RUNAI_STREAMER_S3_UNSIGNED"
_READ_WITH_BUCKET = {
    *CREDENTIALS,
    *(name for names in BUCKET_VARIABLES.values() for name in names),
    _UNSIGNED,
    "RUNAI_STREAMER_S3_USE_VIRTUAL_ADDRESSING",
    "AWS_EC2_METADATA_DISABLED",
}
_USE_SECRET = (
    f"The key token of the Secret {HUB_SECRET} is used. Create it: kubectl create secret generic {HUB_SECRET} "
    "--from-file=token=FILE"
)


def model_of(options: ParsedOptions) -> str:
    """The model argument of vLLM.

    Raises:
        ConversionError: There is none, or it is not usable.
    """
    named = options.values.get("model") or next(iter(options.positional), None)
    unresolved = next((r.subject for r in options.remarks if r.subject.startswith("--model ")), None)
    if isinstance(named, Unresolved):
        named, unresolved = None, named
    if named is None:
        why = f"{unresolved} has a part that a shell would replace." if unresolved else "It names no model."
        raise ConversionError(
            f"{why} Give the model itself: `vllm serve OWNER/NAME`, or --model with a repository or a folder."
        )
    return str(named)


def source_settings(options: ParsedOptions, launch: Launch) -> Iterator[Finding]:
    """The source of the weights, and the served model name."""
    model = model_of(options)
    model, gguf = _without_gguf_type(model, options)
    yield from gguf
    if _REPOSITORY.fullmatch(model):
        yield from _hub(model, options, launch)
    elif is_bucket(model):
        yield from _bucket(model.rstrip("/"), options, launch)
    elif model.startswith("/"):
        yield from _local(model.rstrip("/") or "/", launch)
    else:
        raise ConversionError(
            f"The model is {model[:200]!r}. Write a repository as OWNER/NAME, or the absolute path of a folder; a path "
            "relative to this machine's current folder means nothing in a pod."
        )
    yield from _about_class(model.rstrip("/").rpartition("/")[2], launch)
    for word in options.positional[0 if "model" in options.values else 1 :]:
        reason = why_unresolved(word) if isinstance(word, Unresolved) else _SUPERFLUOUS
        yield Remark(word, reason)
    if "served-model-name" not in options.values:
        if _MODEL_NAME.fullmatch(model):
            yield "model.name", model
        else:
            yield Remark(
                "model name",
                f"The model name {model!r} is not possible, because a name begins with a letter or a digit. Clients "
                "use the name of the resource, or the name in spec.model.name.",
                left_out=False,
            )


def _without_gguf_type(model: str, options: ParsedOptions) -> tuple[str, list[Remark]]:
    """The model without the type of GGUF weights (`owner/name:Q4_K_M`), and what GGUF needs."""
    repository, colon, kind = model.partition(":")
    typed = bool(colon) and _GGUF_TYPE.fullmatch(kind) is not None and _REPOSITORY.fullmatch(repository) is not None
    if not typed and not _GGUF.search(model) and options.values.get("quantization") != "gguf":
        return model, []
    remarks = [Remark(f"model {model}", GGUF, left_out=False)]
    return (repository, [Remark(f":{kind}", GGUF), *remarks]) if typed else (model, remarks)


def _about_class(name: str, launch: Launch) -> Iterator[Remark]:
    """A remark on a model whose name begins with a type that vLLM has removed, such as `baichuan-7B-Chat`."""
    first = name.lower().partition("-")[0]
    family = {"baichuan2": "baichuan"}.get(first, first)
    last = LAST_VERSIONS.get(family)
    if last is not None and (launch.image is None or is_official(launch.image)):
        yield Remark(
            "model class",
            f"The name suggests model_type {family}. vLLM no longer has a class for that type; {last} was the last "
            "release with one. docs/older-models.md has the ways to serve it.",
            left_out=False,
        )


def _hub(repository: str, options: ParsedOptions, launch: Launch) -> Iterator[Finding]:
    member = "modelScope" if _from_model_scope(launch) else "huggingFace"
    yield f"model.source.{member}.repository", repository
    revision = options.values.get("revision")
    if revision is not None:
        yield f"model.source.{member}.revision", revision
    else:
        yield Remark(
            f"model.source.{member}.revision",
            "No revision is pinned. Pin a commit, so that all pods serve the same weights.",
            left_out=False,
        )
    tokenizer = options.values.get("tokenizer-revision")
    if tokenizer is not None and tokenizer != revision:
        yield Remark(f"--tokenizer-revision {tokenizer}", "The tokenizer has the model's revision.")
    if member == "modelScope":
        yield Remark(
            "VLLM_USE_MODELSCOPE",
            "vLLM needs the Python package modelscope in the engine image to download from there. With "
            "spec.model.cache.persistentVolumeClaim the operator downloads the model, and vLLM needs no hub.",
            left_out=False,
        )


def is_bucket(model: str) -> bool:
    """Whether vLLM reads the model from a bucket of S3."""
    return model.startswith("s3://")


def variables_of_bucket(options: ParsedOptions, launch: Launch) -> set[str]:
    """Variables that are read with a model in a bucket, or that it cannot have."""
    names = {*launch.environment, *launch.secrets} if is_bucket(model_of(options)) else set()
    return {name for name in names if configures_bucket(name)}


def _bucket(uri: str, options: ParsedOptions, launch: Launch) -> Iterator[Finding]:
    yield "model.source.bucket.uri", uri
    for name in sorted(variables_of_bucket(options, launch) - _READ_WITH_BUCKET):
        yield Remark(name, "A bucket has an endpoint, a region and an access key without a session token.")
    for member, names in BUCKET_VARIABLES.items():
        if found := next((launch.environment[name] for name in names if launch.environment.get(name)), None):
            yield f"model.source.bucket.{member}", found
    if launch.environment.get(_UNSIGNED) == "1":
        return
    named = [launch.secrets.get(name) for name in CREDENTIALS]
    secret = named[0][0] if named[0] and named[1] == (named[0][0], CREDENTIALS[1]) else BUCKET_SECRET
    yield "model.source.bucket.secretName", secret
    if named[0] != (secret, CREDENTIALS[0]):
        keys = " ".join(f"--from-file={name}=FILE" for name in CREDENTIALS)
        yield Remark(
            "model.source.bucket.secretName",
            f"Pods need a key for the bucket. Create the Secret: kubectl create secret generic {secret} {keys}. Remove "
            "the field if the bucket is public.",
            left_out=False,
        )


def _from_model_scope(launch: Launch) -> bool:
    return launch.environment.get("VLLM_USE_MODELSCOPE", "").strip().lower() in {"true", "1"}


def _local(path: str, launch: Launch) -> Iterator[Finding]:
    folder = next((f for f in launch.folders if f"{path}/".startswith(f"{f.mount.rstrip('/')}/")), None)
    if not _FOLDER.fullmatch(path):
        raise ConversionError(f"The folder {path[:200]!r} has a name that no resource can have. Rename it.")
    if folder is not None and folder.member in _VOLUMES:
        yield f"model.source.{folder.member}.{_VOLUMES[folder.member]}", folder.origin
        if inside := _inside(path, folder):
            yield f"model.source.{folder.member}.path", inside
        return
    yield "model.source.path", path
    yield Remark("model.source.path", _about_folder(path, folder), left_out=False)


def _about_folder(path: str, folder: Folder | None) -> str:
    """What source.path means, and which other sources there are for a folder that is mounted."""
    if folder is not None and folder.member == "emptyDir":
        return (
            "Another container fills this folder before vLLM starts, which no pod of the operator does. Set "
            "model.source.huggingFace (model.cache keeps one download), or a claim with the model."
        )
    there = f"{folder.origin.rstrip('/')}/{_inside(path, folder)}".rstrip("/") if folder else path
    where = f"It is mounted from {there}, but source.path" if folder else "This"
    return (
        f"{where} is a folder of the engine image. If the model is on your machine, use one of these instead: a claim "
        "with a copy of it (persistentVolumeClaim: {claimName: ..., path: ...}); or the folder of the nodes (hostPath: "
        f"{{path: {there}}}), which the chart's allowedHostPaths has to allow."
    )


def _inside(path: str, folder: Folder) -> str:
    rest = path.removeprefix(folder.mount.rstrip("/")).strip("/")
    return "/".join(part for part in (folder.inside.strip("/"), rest) if part)


def served_names(value: Any, _options: ParsedOptions, _launch: Launch) -> Iterator[Finding]:
    """The first served model name. The resource has only one."""
    first, *others = [str(name) for name in value]
    yield "model.name", first
    if others:
        yield Remark(f"--served-model-name {' '.join(others)}", f"A model has one name: {first}.")


def chat_template(value: Any, _options: ParsedOptions, _launch: Launch) -> Iterator[Finding]:
    """The text of a chat template, or a ConfigMap that the user must create from a file."""
    text = str(value)
    if "{{" in text or "{%" in text:
        yield "model.chatTemplate.inline", text
        return
    key = text.rpartition("/")[2]
    if not _KEY.fullmatch(key):
        raise ValueError("The file's name cannot be a key of a ConfigMap. Use model.chatTemplate.configMap.")
    yield "model.chatTemplate.configMap", {"name": CONFIG_MAP, "key": key}
    yield Remark(
        f"--chat-template {text}",
        f"Pods read it from a ConfigMap. Create it: kubectl create configmap {CONFIG_MAP} "
        f"--from-file={key}={quote(text)}",
        left_out=False,
    )


def adapters(value: Any, options: ParsedOptions, _launch: Launch) -> Iterator[Finding]:
    """LoRA adapters, each `name=path` or a JSON object."""
    if not options.values.get("enable-lora"):
        raise ValueError("vLLM ignores it without --enable-lora.")
    found = [_adapter(item) for item in value]
    yield "model.lora.adapters", found
    if any(adapter["path"].startswith("/") for adapter in found):
        yield Remark(
            "--lora-modules",
            "The pods need these folders: name repositories of a hub, put the adapters beside the model in its volume, "
            "or mount them with podTemplate of both roles.",
            left_out=False,
        )


def _adapter(item: Any) -> dict[str, str]:
    if isinstance(item, dict):
        name, path = item.get("name"), item.get("path")
    else:
        name, _, path = str(item).partition("=")
    if not (isinstance(name, str) and isinstance(path, str) and path):
        raise ValueError("Write each adapter as NAME=PATH.")
    return {"name": name, "path": path}


def hub_token(_value: Any, options: ParsedOptions, launch: Launch) -> Iterator[Finding]:
    """A token in plain text, as a reference to a Secret that the user must create."""
    yield from token_settings(options, launch, "--hf-token")


def token_settings(options: ParsedOptions, launch: Launch, subject: str) -> Iterator[Finding]:
    """The Secret with the access token for the Hugging Face hub."""
    named = next((launch.secrets[name] for name in HUB_TOKENS if name in launch.secrets), None)
    if _from_model_scope(launch) or not _REPOSITORY.fullmatch(model_of(options)):
        yield Remark(subject, "The model does not come from the Hugging Face hub.")
        return
    name, key = named or (HUB_SECRET, "token")
    yield "model.source.huggingFace.tokenSecret", {"name": name, "key": key}
    if named is None:
        yield Remark(subject, f"A resource holds no token. {_USE_SECRET}")
