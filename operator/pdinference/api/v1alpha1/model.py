"""`spec.model`: which model, and where its weights come from."""

import hashlib
import json
import re
from typing import Annotated, Any, ClassVar, Literal

from jinja2 import Environment, TemplateSyntaxError
from jinja2.ext import Extension
from jinja2.nodes import Node
from jinja2.parser import Parser
from pydantic import AfterValidator, Field, WithJsonSchema

from pdinference.api.v1alpha1.base import ApiModel, ImageReference, Matches, ObjectName, Rule

_JINJA = re.compile(r"\{[{%]")
GenerationParameter = Literal[
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "max_new_tokens",
]

# Segments start with a letter, digit or underscore: no option (`-x`), no `..`, no absolute path.
_SEGMENT = "[A-Za-z0-9_][A-Za-z0-9_.-]*"
_PATH_RULES = "each part begins with a letter, digit or underscore and goes on with these, dots or dashes"


Repository = Annotated[
    str,
    Field(max_length=193),
    Matches(
        "^[A-Za-z0-9][A-Za-z0-9_.-]*/[A-Za-z0-9][A-Za-z0-9_.-]*$",
        "Write the repository as owner/name, for example meta-llama/Llama-3.1-8B-Instruct.",
    ),
]
Revision = Annotated[
    str, Field(max_length=255), Matches(f"^{_SEGMENT}(/{_SEGMENT})*$", f"Write a branch, tag or commit; {_PATH_RULES}.")
]
RelativePath = Annotated[
    str,
    Field(max_length=1024),
    Matches(
        f"^{_SEGMENT}(/{_SEGMENT})*$",
        f"Write a path within the volume, without a slash in front, for example llama/8b; {_PATH_RULES}.",
    ),
]
AbsolutePath = Annotated[
    str,
    Field(max_length=1024),
    Matches(f"^(/{_SEGMENT})+$", f"Write an absolute path, for example /models/llama; {_PATH_RULES}."),
]


_CONFIG_LIMIT = 65536


def _short(config: dict[str, Any]) -> dict[str, Any]:
    if len(json.dumps(config)) > _CONFIG_LIMIT:
        raise ValueError(f"Write at most {_CONFIG_LIMIT} characters; the plan needs sizes and counts only.")
    return config


class SecretKey(ApiModel):
    """One key of a Secret in the namespace of the PDInference. The operator never reads it; the kubelet does."""

    name: ObjectName
    """Name of the Secret."""
    key: Annotated[
        str,
        Field(max_length=253),
        Matches("^[A-Za-z0-9._-]+$", "Write a key of a Secret: letters, digits, dots, dashes and underscores."),
    ]
    """Key within the Secret."""


class HuggingFaceSource(ApiModel):
    """A repository on the Hugging Face hub; each pod downloads it at start."""

    repository: Repository
    """Repository as `owner/name`, for example `meta-llama/Llama-3.1-8B-Instruct`."""
    revision: Revision = "main"
    """Branch, tag or commit. Pin a commit, so that every pod serves the same weights."""
    token_secret: SecretKey | None = None
    """Secret with the access token, for gated and private repositories."""


class ModelScopeSource(ApiModel):
    """A repository on ModelScope; each pod downloads it at start."""

    repository: Repository
    """Repository as `owner/name`, for example `Qwen/Qwen2.5-7B-Instruct`."""
    revision: Revision = "master"
    """Branch, tag or commit. Pin a commit, so that every pod serves the same weights."""


class ImageSource(ApiModel):
    """An OCI image or artifact that the kubelet mounts as a read-only volume (Kubernetes' ImageVolume feature)."""

    reference: ImageReference
    """Image, with a tag or, better, a digest."""
    path: RelativePath | None = None
    """Folder of the model within the image, relative to its root. Default: the root."""
    pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    """When the kubelet pulls it."""


class HostPathSource(ApiModel):
    """A folder of the node, mounted read-only. The operator has to be installed to allow it (`allowedHostPaths`)."""

    path: AbsolutePath
    """Folder on every node that pods may run on."""


class PersistentVolumeClaimSource(ApiModel):
    """A folder on a PersistentVolumeClaim, mounted read-only in every P and D pod."""

    claim_name: ObjectName
    """Name of the claim, in the namespace of the PDInference. Pods on several nodes need a fitting access mode."""
    path: RelativePath | None = None
    """Folder of the model within the volume, relative to its root. Default: the root."""


class ModelSource(ApiModel):
    """Where the weights come from: exactly one of the members."""

    hugging_face: HuggingFaceSource | None = None
    """The Hugging Face hub."""
    model_scope: ModelScopeSource | None = None
    """ModelScope."""
    persistent_volume_claim: PersistentVolumeClaimSource | None = None
    """A PersistentVolumeClaim that holds the model already."""
    image: ImageSource | None = None
    """An OCI image that holds the model."""
    host_path: HostPathSource | None = None
    """A folder of the node."""
    path: AbsolutePath | None = None
    """Absolute path of a folder that the engine image already contains."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="[has(self.huggingFace), has(self.modelScope), has(self.persistentVolumeClaim), has(self.image), "
            "has(self.hostPath), has(self.path)].filter(x, x).size() == 1",
            holds=lambda s: len(s.model_fields_set - {n for n in s.model_fields_set if getattr(s, n) is None}) == 1,
            message="Set exactly one of huggingFace, modelScope, persistentVolumeClaim, image, hostPath and path.",
        ),
    )

    @property
    def hub(self) -> HuggingFaceSource | ModelScopeSource | None:
        """The repository on a hub, if that is where the model is."""
        return self.hugging_face or self.model_scope

    def identity(self) -> str:
        """Tells one model from another: what is known of one does not hold for the other."""
        where = self.model_dump(mode="json", exclude={"hugging_face": {"token_secret"}}, exclude_none=True)
        return hashlib.sha256(json.dumps(where, sort_keys=True).encode()).hexdigest()[:12]


class Architecture(ApiModel):
    """What is known of the model, for the memory plan. Pods get of it only more time to start, with large weights."""

    config: Annotated[
        dict[str, Any],
        Field(max_length=128),
        AfterValidator(_short),
        WithJsonSchema({"type": "object", "maxProperties": 128, "x-kubernetes-preserve-unknown-fields": True}),
    ]
    """The members of the model's config.json, for example `num_hidden_layers: 32`."""
    weights_bytes: Annotated[int, Field(ge=1)] | None = None
    """Bytes of all weights as vLLM loads them. Default: computed from config, for architectures that are known."""


class CacheClaim(ApiModel):
    """A PersistentVolumeClaim for models; any number of PDInferences may share it."""

    claim_name: ObjectName
    """Name of the claim, in the namespace of the PDInference. Pods on several nodes need an access mode that allows
    it."""


class ModelCache(ApiModel):
    """Where a model from a hub is kept: exactly one of the members."""

    persistent_volume_claim: CacheClaim | None = None
    """A claim that exists. A Job downloads the model once; P and D start when it is there, and mount it read-only."""
    host_path: HostPathSource | None = None
    """A folder of each node that user 65532 may write to: the first pod on a node downloads, the others use that."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="has(self.persistentVolumeClaim) != has(self.hostPath)",
            holds=lambda c: (c.persistent_volume_claim is None) != (c.host_path is None),
            message="Set exactly one of persistentVolumeClaim and hostPath.",
        ),
    )


class ConfigMapKey(ApiModel):
    """One key of a ConfigMap in the namespace of the PDInference."""

    name: ObjectName
    """Name of the ConfigMap."""
    key: Annotated[
        str,
        Field(max_length=253),
        Matches("^[A-Za-z0-9._-]+$", "Write a key of a ConfigMap: letters, digits, dots, dashes and underscores."),
    ]
    """Key within the ConfigMap."""


class _Generation(Extension):
    """`{% generation %}`, by which transformers marks what the assistant wrote (its utils/chat_template_utils.py)."""

    tags = {"generation"}  # noqa: RUF012 - declared so by the base class

    def parse(self, parser: Parser) -> list[Node]:
        """Read the tag; what it encloses stays as it is."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


_CHAT_TEMPLATES = Environment(  # noqa: S701 - it parses and never renders
    extensions=["jinja2.ext.loopcontrols", _Generation]
)


def _parses(template: str) -> str:
    try:
        _CHAT_TEMPLATES.parse(template)
    except TemplateSyntaxError as error:
        raise ValueError(f"Line {error.lineno} is no Jinja2: {error.message}") from None
    if not _JINJA.search(template):
        raise ValueError("Write a Jinja2 template; a text without {{ }} or {% %} would ignore the messages.")
    return template


class ChatTemplate(ApiModel):
    """How chat messages become a prompt, in Jinja2: exactly one of the members."""

    inline: Annotated[str, Field(max_length=65536), AfterValidator(_parses)] | None = None
    """The template itself."""
    config_map: ConfigMapKey | None = None
    """A ConfigMap that holds it. Pods read it when they start."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="has(self.inline) != has(self.configMap)",
            holds=lambda t: (t.inline is None) != (t.config_map is None),
            message="Set exactly one of inline and configMap.",
        ),
    )


class LoRAAdapter(ApiModel):
    """One LoRA adapter, which clients choose by its name as they would a model."""

    name: Annotated[
        str,
        Field(max_length=253),
        Matches(
            "^[A-Za-z0-9][A-Za-z0-9_./:-]*$",
            "Write a model name as clients send it: letters, digits and . _ / : -, a letter or digit first.",
        ),
    ]
    """Name that clients put into the `model` field of a request."""
    path: Annotated[
        str,
        Field(max_length=1024),
        Matches(
            f"^/?{_SEGMENT}(/{_SEGMENT})*$", "Write a repository as owner/name, or a path where the engine finds it."
        ),
    ]
    """Repository on the hub as `owner/name`, or absolute path of a folder that the pods have."""


class LoRA(ApiModel):
    """LoRA adapters on top of the model."""

    adapters: Annotated[
        list[LoRAAdapter],
        Field(
            max_length=64, json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
        ),
    ] = Field(default_factory=list)
    """Adapters that are there from the start."""
    max_rank: Literal[1, 8, 16, 32, 64, 128, 256, 320, 512] = 16
    """Largest rank of an adapter; memory is set aside for it."""
    max_active: Annotated[int, Field(ge=1, le=256)] = 1
    """Most adapters in one batch; memory is set aside for each."""
    dynamic_loading: bool = False
    """Whether clients of the pods may load and unload adapters through vLLM's API. The router does not pass these calls
    on to every pod, so this is for administrators who reach the pods."""


class Model(ApiModel):
    """The model to serve."""

    name: (
        Annotated[
            str,
            Field(max_length=253),
            Matches(
                "^[A-Za-z0-9][A-Za-z0-9_./:-]*$",
                "Write a model name as clients send it: letters, digits and . _ / : -, a letter or digit first.",
            ),
        ]
        | None
    ) = None
    """Name that clients put into the `model` field of a request. Default: the name of the PDInference."""
    source: ModelSource
    """Where the weights come from."""
    cache: ModelCache | None = None
    """Where the model is kept, so that it is downloaded once, and verified. Default: each pod downloads it at start."""
    inspect: bool = False
    """Whether a small Job reads the model's config and the headers of its weights, so that status.model.facts has what
    the memory plan needs. Not needed with a claim as cache, whose Job does so anyway."""
    dtype: Literal["auto", "half", "float16", "bfloat16", "float", "float32"] = "auto"
    """Type of weights and activations; auto is that of the model."""
    quantization: (
        Literal["awq", "awq_marlin", "gptq", "gptq_marlin", "fp8", "bitsandbytes", "compressed-tensors"] | None
    ) = None
    """How the weights are quantised. Default: what the model itself says, which is right for checkpoints that are
    quantised already; fp8 and bitsandbytes also quantise others while they load."""
    max_model_length: Annotated[int, Field(ge=1, le=16777216)] | None = None
    """Most tokens of a prompt and its answer together. Default: what the model says, which may need more memory than
    there is."""
    tokenizer: (
        Annotated[
            str,
            Field(max_length=1024),
            Matches(
                f"^/?{_SEGMENT}(/{_SEGMENT})*$",
                "Write a repository as owner/name, or a path where the engine finds it.",
            ),
        ]
        | None
    ) = None
    """Tokenizer, as a repository or path. Default: the model's own."""
    chat_template: ChatTemplate | None = None
    """How chat messages become a prompt. Default: the model's own."""
    generation_defaults: Annotated[
        dict[GenerationParameter, Any],
        Field(max_length=32),
        WithJsonSchema({"type": "object", "maxProperties": 32, "x-kubernetes-preserve-unknown-fields": True}),
    ] = Field(default_factory=dict)
    """Sampling parameters of requests that say nothing else, for example `temperature: 0.6`."""
    trust_remote_code: bool = False
    """Whether Python code in the model's repository may run in the pods. It could do anything that vLLM can: only for
    repositories that you trust, and with a pinned revision."""
    lora: LoRA | None = None
    """LoRA adapters on top of the model."""
    architecture: Architecture | None = None
    """What is known of the model, for the memory plan. Default: what the operator found out (status.model.facts)."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!has(self.cache) || has(self.source.huggingFace) || has(self.source.modelScope)",
            holds=lambda m: m.cache is None or m.source.hub is not None,
            field="cache",
            message="Only models from huggingFace and modelScope are downloaded; leave cache out for other sources.",
        ),
        Rule(
            cel="!self.inspect || !has(self.source.path)",
            holds=lambda m: not m.inspect or m.source.path is None,
            field="inspect",
            message="Only the engine image holds the model of source.path; state what is known in architecture.",
        ),
    )
