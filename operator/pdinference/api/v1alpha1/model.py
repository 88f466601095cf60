"""`spec.model`: which model, and where its weights come from."""

from typing import Annotated, ClassVar

from pydantic import Field

from pdinference.api.v1alpha1.base import ApiModel, Matches, ObjectName, Rule

# Segments start with a letter, digit or underscore: no option (`-x`), no `..`, no absolute path.
_SEGMENT = "[A-Za-z0-9_][A-Za-z0-9_.-]*"
_PATH_RULES = "each part begins with a letter, digit or underscore and goes on with these, dots or dashes"


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

    repository: Annotated[
        str,
        Field(max_length=193),
        Matches(
            "^[A-Za-z0-9][A-Za-z0-9_.-]*/[A-Za-z0-9][A-Za-z0-9_.-]*$",
            "Write the repository as owner/name, for example meta-llama/Llama-3.1-8B-Instruct.",
        ),
    ]
    """Repository as `owner/name`, for example `meta-llama/Llama-3.1-8B-Instruct`."""
    revision: Annotated[
        str,
        Field(max_length=255),
        Matches(f"^{_SEGMENT}(/{_SEGMENT})*$", f"Write a branch, tag or commit; {_PATH_RULES}."),
    ] = "main"
    """Branch, tag or commit. Pin a commit, so that every pod serves the same weights."""
    token_secret: SecretKey | None = None
    """Secret with the access token, for gated and private repositories."""


class PersistentVolumeClaimSource(ApiModel):
    """A folder on a PersistentVolumeClaim, mounted read-only in every P and D pod."""

    claim_name: ObjectName
    """Name of the claim, in the namespace of the PDInference. Pods on several nodes need a fitting access mode."""
    path: (
        Annotated[
            str,
            Field(max_length=1024),
            Matches(
                f"^{_SEGMENT}(/{_SEGMENT})*$",
                f"Write a path within the volume, without a slash in front, for example llama/8b; {_PATH_RULES}.",
            ),
        ]
        | None
    ) = None
    """Folder of the model within the volume, relative to its root. Default: the root."""


class ModelSource(ApiModel):
    """Where the weights come from: exactly one of the members."""

    hugging_face: HuggingFaceSource | None = None
    """The Hugging Face hub."""
    persistent_volume_claim: PersistentVolumeClaimSource | None = None
    """A PersistentVolumeClaim that holds the model already."""
    path: (
        Annotated[
            str,
            Field(max_length=1024),
            Matches(f"^(/{_SEGMENT})+$", f"Write an absolute path, for example /models/llama; {_PATH_RULES}."),
        ]
        | None
    ) = None
    """Absolute path of a folder that the engine image already contains."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="[has(self.huggingFace), has(self.persistentVolumeClaim), has(self.path)].filter(x, x).size() == 1",
            holds=lambda s: [s.hugging_face, s.persistent_volume_claim, s.path].count(None) == 2,
            message="Set exactly one of huggingFace, persistentVolumeClaim and path.",
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
