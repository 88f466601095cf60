"""`spec.model`: the model, its tokenizer, chat template, adapters and sampling defaults.

Tests: tests/api/test_validation.py, tests/api/test_generation_defaults.py
"""

import re
from functools import lru_cache
from itertools import islice
from typing import Annotated, Any, ClassVar, Final, Literal

from jinja2 import Environment, TemplateSyntaxError
from jinja2.ext import Extension
from jinja2.nodes import Node
from jinja2.parser import Parser
from pydantic import AfterValidator, Field, WithJsonSchema

from pdinference.api.v1alpha1.base import ApiModel, AsJson, DataKey, Matches, ObjectName, Quantity, Rule
from pdinference.api.v1alpha1.source import SEGMENT, Architecture, ModelCache, ModelSource

_JINJA = re.compile(r"\{[{%]")
GENERATION_PARAMETERS = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "max_new_tokens",
)
"""Parameters that vLLM accepts as server-wide defaults (`get_diff_sampling_param` in vllm/config/model.py)."""
_OTHER_NAMES = {"max_tokens": "max_new_tokens", "max_completion_tokens": "max_new_tokens"}
_STOP_TOKENS = (
    "vLLM has no server-wide default for stop_token_ids. Set it in each request, or set eos_token_id in the model's "
    "generation_config.json."
)


def _generation_parameter(name: str) -> str:
    if name in GENERATION_PARAMETERS:
        return name
    if other := _OTHER_NAMES.get(name):
        raise ValueError(f"Write {other}: that is vLLM's name for this default. Only requests call it max_tokens.")
    if name == "stop_token_ids":
        raise ValueError(_STOP_TOKENS)
    raise ValueError(
        f"vLLM supports these server-wide defaults: {', '.join(GENERATION_PARAMETERS)}. Set any other sampling "
        "parameter in each request."
    )


LoadFormat = Literal["auto", "safetensors", "runai_streamer", "fastsafetensors", "instanttensor"]
"""Loaders that need no options of their own. Others can be set in args, with those that they need."""
STREAMER: Final = "runai_streamer"
GenerationParameter = Annotated[str, AfterValidator(_generation_parameter)]


class ConfigMapKey(ApiModel):
    """One key of a ConfigMap in the namespace of the PDInference."""

    name: ObjectName
    """Name of the ConfigMap."""
    key: DataKey
    """Key within the ConfigMap."""


class _Generation(Extension):
    """The tag `{% generation %}`, with which transformers marks assistant text (utils/chat_template_utils.py)."""

    tags = {"generation"}  # noqa: RUF012 - declared so by the base class

    def parse(self, parser: Parser) -> list[Node]:
        """Parse the tag and its body."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


_CHAT_TEMPLATES = Environment(  # noqa: S701 - it parses and never renders
    extensions=["jinja2.ext.loopcontrols", _Generation]
)


_MOST_TOKENS: Final = 16384
"""A template of the longest models has a few thousand. Parsing takes 10 us for each."""


def _parses(template: str) -> str:
    if fault := _fault(template):
        raise ValueError(fault)
    return template


@lru_cache(maxsize=8)  # a document with other problems is validated several times
def _fault(template: str) -> str:
    """What is wrong with a template; empty if nothing is."""
    try:
        if next(islice(_CHAT_TEMPLATES.lex(template), _MOST_TOKENS, None), None) is not None:
            return f"The template has more than {_MOST_TOKENS} tokens. Put it into a ConfigMap: chatTemplate.configMap."
        _CHAT_TEMPLATES.parse(template)
    except TemplateSyntaxError as error:
        return f"Line {error.lineno} is not valid Jinja2: {error.message}"
    except RecursionError:
        return "The template is nested too deeply. Use fewer nested parentheses, signs and blocks."
    except ValueError:  # int() refuses it
        return "A number in the template has too many digits. Write a smaller number."
    if not _JINJA.search(template):
        return "Write a Jinja2 template. A text without {{ }} or {% %} would ignore the messages."
    return ""


class ChatTemplate(ApiModel):
    """A Jinja2 chat template, which turns chat messages into a prompt. Set exactly one member."""

    inline: Annotated[str, Field(max_length=65536), AfterValidator(_parses)] | None = None
    """The template text."""
    config_map: ConfigMapKey | None = None
    """ConfigMap key with the template. Pods read it at start."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="has(self.inline) != has(self.configMap)",
            holds=lambda t: (t.inline is None) != (t.config_map is None),
            message="Set exactly one of inline and configMap.",
        ),
    )


class LoRAAdapter(ApiModel):
    """A LoRA adapter. Clients select it by name in the `model` field of a request."""

    name: Annotated[
        str,
        Field(max_length=253),
        Matches(
            "^[A-Za-z0-9][A-Za-z0-9_./:-]*$",
            "Write a model name as clients send it: letters, digits and . _ / : -, starting with a letter or digit.",
        ),
    ]
    """Name for the `model` field of requests."""
    path: Annotated[
        str,
        Field(max_length=1024),
        Matches(f"^/?{SEGMENT}(/{SEGMENT})*$", "Write a repository as owner/name, or a path that exists in the pods."),
    ]
    """Repository on the hub as `owner/name`, or absolute path of a folder in the pods."""


class LoRA(ApiModel):
    """LoRA adapters on top of the model."""

    adapters: Annotated[
        list[LoRAAdapter],
        Field(
            max_length=64, json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
        ),
    ] = Field(default_factory=list)
    """Adapters that vLLM loads at start."""
    max_rank: Literal[1, 8, 16, 32, 64, 128, 256, 320, 512] = 16
    """Maximum rank of an adapter. vLLM reserves memory for it."""
    max_active: Annotated[int, Field(ge=1, le=256)] = 1
    """Maximum number of adapters in one batch. vLLM reserves memory for each."""
    dynamic_loading: bool = False
    """Whether adapters can be loaded and unloaded through vLLM's API. The router does not forward these calls to every
    pod, so callers need direct access to the pods."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!has(self.adapters) || self.adapters.all(a, self.adapters.exists_one(b, a.name == b.name))",
            holds=lambda lora: len({adapter.name for adapter in lora.adapters}) == len(lora.adapters),
            field="adapters",
            message="Two adapters have the same name. Give each adapter a unique name.",
        ),
    )


class WeightLoading(ApiModel):
    """How vLLM reads the weights at start."""

    format: LoadFormat = "auto"
    """Loader of vLLM. runai_streamer reads safetensors files with many threads, also from a bucket; fastsafetensors and
    instanttensor read them into GPUs with few copies. auto: runai_streamer for a bucket without spec.model.cache, or
    else vLLM's default."""
    concurrency: Annotated[int, Field(ge=1, le=256)] | None = None
    """Threads, or connections to a bucket, of runai_streamer in each process. Default: that of the library."""
    memory_limit: Quantity | None = None
    """Host memory that runai_streamer uses as buffer in each process. Default: that of the library, which may be more
    than a container's memory limit."""


class Model(ApiModel):
    """The model to serve."""

    name: (
        Annotated[
            str,
            Field(max_length=253),
            Matches(
                "^[A-Za-z0-9][A-Za-z0-9_./:-]*$",
                "Write a model name as clients send it: letters, digits and . _ / : -, starting with a letter or "
                "digit.",
            ),
        ]
        | None
    ) = None
    """Name for the `model` field of requests. Default: the name of the PDInference."""
    source: ModelSource
    """Where the weights come from."""
    cache: ModelCache | None = None
    """Where the model is stored after one verified download. Default: each pod downloads the model at start."""
    load: WeightLoading = Field(default_factory=WeightLoading)
    """How vLLM reads the weights at start."""
    inspect: bool = False
    """Whether a Job reads the model's config and weight sizes into status.model.facts for the memory plan. Not needed
    if cache is a claim: its Job reads them too."""
    dtype: Literal["auto", "half", "float16", "bfloat16", "float", "float32"] = "auto"
    """Data type of weights and activations. auto: the type in the model's config."""
    quantization: (
        Literal["awq", "awq_marlin", "gptq", "gptq_marlin", "fp8", "bitsandbytes", "compressed-tensors"] | None
    ) = None
    """Quantization of the weights. Default: the method in the model's config, which is right for quantized
    checkpoints. fp8 and bitsandbytes can also quantize other checkpoints at load time."""
    max_model_length: Annotated[int, Field(ge=1, le=16777216)] | None = None
    """Maximum number of tokens in a prompt and its completion together. Default: the length in the model's config,
    which may need more memory than the devices have."""
    tokenizer: (
        Annotated[
            str,
            Field(max_length=1024),
            Matches(
                f"^/?{SEGMENT}(/{SEGMENT})*$",
                "Write a repository as owner/name, or a path that exists in the pods.",
            ),
        ]
        | None
    ) = None
    """Tokenizer, as a repository or a path. Default: the tokenizer of the model."""
    chat_template: ChatTemplate | None = None
    """Chat template. Default: the template of the model."""
    generation_defaults: Annotated[
        dict[GenerationParameter, Any],
        AsJson,
        Field(max_length=32),
        WithJsonSchema({"type": "object", "maxProperties": 32, "x-kubernetes-preserve-unknown-fields": True}),
    ] = Field(default_factory=dict)
    """Default sampling parameters of requests, for example `temperature: 0.6`."""
    trust_remote_code: bool = False
    """Whether the pods run Python code from the model's repository, with all permissions of vLLM. Enable it only for
    repositories that you trust, and pin the revision."""
    lora: LoRA | None = None
    """LoRA adapters for the model."""
    architecture: Architecture | None = None
    """Facts about the model for the memory plan. Default: the facts that the operator found (status.model.facts)."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!has(self.cache) || has(self.source.huggingFace) || has(self.source.modelScope) || "
            "has(self.source.bucket)",
            holds=lambda m: m.cache is None or m.source.hub is not None or m.source.bucket is not None,
            field="cache",
            message="cache needs source.huggingFace, modelScope or bucket. Remove cache for other sources.",
        ),
        Rule(
            cel="!has(self.load) || !has(self.load.format) || !has(self.source.bucket) || has(self.cache) || "
            "self.load.format in ['auto', 'runai_streamer']",
            holds=lambda m: not m.streams or m.load.format in {"auto", STREAMER},
            field="load.format",
            message="Without cache, vLLM can load from a bucket with runai_streamer only. Remove format, or set cache.",
        ),
        Rule(
            cel="!has(self.load) || !(has(self.load.concurrency) || has(self.load.memoryLimit)) || "
            "(has(self.load.format) && self.load.format == 'runai_streamer') || "
            "(has(self.source.bucket) && !has(self.cache))",
            holds=lambda m: (m.load.concurrency is None and m.load.memory_limit is None) or m.load_format == STREAMER,
            field="load",
            message="concurrency and memoryLimit are options of runai_streamer. Set format: runai_streamer, or remove "
            "them.",
        ),
        Rule(
            cel="!self.inspect || !has(self.source.path)",
            holds=lambda m: not m.inspect or m.source.path is None,
            field="inspect",
            message="The Job cannot read source.path, which is part of the engine image. Remove inspect, and set "
            "architecture instead.",
        ),
    )

    @property
    def streams(self) -> bool:
        """Whether vLLM reads the weights from a bucket."""
        return self.source.bucket is not None and self.cache is None

    @property
    def load_format(self) -> str | None:
        """vLLM's load format; None for its default."""
        if self.load.format != "auto":
            return self.load.format
        return STREAMER if self.streams else None

    @property
    def on_volume(self) -> bool:
        """Whether pods have the model's files before vLLM starts, so that they can verify them."""
        return self.cache is not None or self.source.volume is not None
