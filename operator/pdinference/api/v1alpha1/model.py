"""`spec.model`: which model, and how it answers."""

import re
from typing import Annotated, Any, ClassVar, Literal

from jinja2 import Environment, TemplateSyntaxError
from jinja2.ext import Extension
from jinja2.nodes import Node
from jinja2.parser import Parser
from pydantic import AfterValidator, Field, WithJsonSchema

from pdinference.api.v1alpha1.base import ApiModel, AsJson, Matches, ObjectName, Rule
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
"""What vLLM takes for a server's default (`get_diff_sampling_param` in vllm/config/model.py); it ignores all else."""
_OTHER_NAMES = {"max_tokens": "max_new_tokens", "max_completion_tokens": "max_new_tokens"}
_STOP_TOKENS = (
    "vLLM has no server-wide default for it. Put it into each request, or into eos_token_id of the model's "
    "generation_config.json."
)


def _generation_parameter(name: str) -> str:
    if name in GENERATION_PARAMETERS:
        return name
    if other := _OTHER_NAMES.get(name):
        raise ValueError(f"vLLM's name for this default is {other}. Write {other} here; in a request it is max_tokens.")
    if name == "stop_token_ids":
        raise ValueError(_STOP_TOKENS)
    raise ValueError(
        f"vLLM has no such server-wide default: it takes {', '.join(GENERATION_PARAMETERS)}. Put any other sampling "
        "parameter into each request."
    )


GenerationParameter = Annotated[str, AfterValidator(_generation_parameter)]


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
    except RecursionError:
        raise ValueError(
            "It is nested too deeply to be read. Use fewer parentheses, signs and blocks inside each other."
        ) from None
    except ValueError:  # int() refuses it
        raise ValueError("A number in it has too many digits. Write a smaller number.") from None
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
            f"^/?{SEGMENT}(/{SEGMENT})*$", "Write a repository as owner/name, or a path where the engine finds it."
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

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!has(self.adapters) || self.adapters.all(a, self.adapters.exists_one(b, a.name == b.name))",
            holds=lambda lora: len({adapter.name for adapter in lora.adapters}) == len(lora.adapters),
            field="adapters",
            message="Give each adapter its own name.",
        ),
    )


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
    """Whether a small Job reads the model's config and the size of its weights into status.model.facts, for the memory
    plan. Not needed with a claim as cache: its Job does so."""
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
                f"^/?{SEGMENT}(/{SEGMENT})*$",
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
        AsJson,
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

    @property
    def on_volume(self) -> bool:
        """Whether pods have the model's files before vLLM starts, and so can look at them."""
        return self.cache is not None or self.source.volume is not None
