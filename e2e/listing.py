"""What catalogs of operators show of a release: the kinds of its API, with an example of each that users create."""

from dataclasses import dataclass
from typing import Any, Final

import yaml

from e2e import images

EXAMPLES: Final = ("llama-8b.yaml", "batch.yaml")
"""Files of examples/, each with a resource of another kind. The operator creates PDScalers, so they have none."""

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of the API.

    Attributes:
        definition: Its CustomResourceDefinition.
    """

    definition: Json

    @property
    def crd(self) -> str:
        """The name of the CustomResourceDefinition."""
        return str(self.definition["metadata"]["name"])

    @property
    def name(self) -> str:
        """The kind itself."""
        return str(self.definition["spec"]["names"]["kind"])

    @property
    def version(self) -> str:
        """The version that is stored."""
        return str(self._stored["name"])

    @property
    def description(self) -> str:
        """What it is for."""
        return str(self._stored["schema"]["openAPIV3Schema"]["description"])

    @property
    def _stored(self) -> Json:
        (version,) = (each for each in self.definition["spec"]["versions"] if each["storage"])
        return dict(version)


def kinds() -> list[Kind]:
    """All of them, by name."""
    files = sorted((images.REPOSITORY / "crds").glob("*.yaml"))
    return [Kind(yaml.load(file.read_text(encoding="utf-8"), yaml.CSafeLoader)) for file in files]


def examples() -> list[Json]:
    """A resource of each kind that users create."""
    known = {kind.name for kind in kinds()}
    texts = ((images.REPOSITORY / "examples" / name).read_text(encoding="utf-8") for name in EXAMPLES)
    documents = (document for text in texts for document in yaml.load_all(text, yaml.CSafeLoader))
    return [document for document in documents if document and document["kind"] in known]
