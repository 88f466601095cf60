"""How a user supplies what a plan lacks: the sentences at the end of every unknown number's note.

The note is in the output of `pdinference plan`, whose options are further ways, and, without these, in a condition.
"""

import re

_STATED = "state spec.model.architecture.weightsBytes beside architecture.config"
_READ = "let a Job read the model's files (spec.model.inspect, or a claim as spec.model.cache; not with source.path)"
_LOG = "vLLM's log says how many: `Model loading took`"


_OPTIONS = " On the command line, `pdinference plan` also takes "
_NO_OPTION = " No option of `pdinference plan` has it."
_ABOUT_OPTIONS = re.compile(rf"{re.escape(_OPTIONS)}.*?\.(?= |$)|{re.escape(_NO_OPTION)}")


def _ways(fields: str, options: str) -> str:
    return f"In the resource: {fields}.{_OPTIONS}{options}."


def of_the_resource(note: str) -> str:
    """A note, or several in one, for a condition: without the sentences about options of `pdinference plan`."""
    return _ABOUT_OPTIONS.sub("", note)


SHAPE = _ways(
    f"put the members of config.json into spec.model.architecture.config, or {_READ}",
    "--model-dir, --model-config or --online",
)
"""For a plan without config.json."""

MEMBERS = _ways(
    "correct these members, or put the right ones into spec.model.architecture.config",
    "--model-config with another file",
)
"""For a config.json with members that cannot be read."""

TENSORS = _ways(f"{_STATED}, or {_READ}", "--model-dir or --online")
"""For weights whose tensors are not known."""

SIZE_IN_MEMORY = _ways(f"{_STATED} ({_LOG})", "--model-config with a config.json that has torch_dtype")
"""For files whose size does not say what vLLM makes of it."""

STATED_SIZE = f"In the resource: {_STATED} ({_LOG}).{_NO_OPTION}"
"""For weights whose files do not help either."""

DRAFT = _ways(
    "put the members of its config.json into spec.model.architecture.draftConfig, beside architecture.config",
    "--draft-config, or --online for a draft on the model's hub",
)
"""For a draft without config.json."""

LENGTH = _ways("set spec.model.maxModelLength", "--model-config or --model-dir where config.json has the length")
"""For the longest request."""

DEVICE = _ways(
    "list accelerator.products of the role, or state the memory of one device in accelerator.memory, for example 80Gi",
    "--memory 80GiB",
)
"""For a device without a product."""

PRODUCT = _ways("state the memory of one device in accelerator.memory of the role, for example 80Gi", "--memory 80GiB")
"""For a product that is not in the table."""

SLICE = _ways("state its memory in accelerator.memory of the role, for example 10Gi", "--memory 10GiB")
"""For a MIG slice, whose memory is not that of its product."""

CPU_MEMORY = _ways(
    "state the size of the KV cache in GiB as VLLM_CPU_KVCACHE_SPACE in env of the role or of spec.engine, or the "
    "node's memory in accelerator.memory",
    "--memory 64GiB",
)
"""For a node whose memory is not known."""

NODE_MEMORY = _ways("state the node's memory in accelerator.memory", "--memory 64GiB")
"""For a node whose memory is not known, with a KV cache of a stated size."""

MEASURED = (
    "No field and no option has it. Start vLLM once: status.plan (observedKvCapacityTokens) and vLLM's log then say "
    "how many tokens fit."
)
"""For a KV cache that is not computed here."""
