"""`GET /v1/models` while no pod can answer it: the model and its adapters, as the resource has them."""

import time
from dataclasses import dataclass
from typing import Any, Final

PATH: Final = "/v1/models"


@dataclass(frozen=True, slots=True)
class Models:
    """What the engines serve.

    Attributes:
        names: Name of the model, then those of its adapters; empty if they are not known.
        longest: Tokens of prompt and answer together; None if only vLLM knows.
    """

    names: tuple[str, ...] = ()
    longest: int | None = None

    def listed(self) -> dict[str, Any]:
        """The list in the form of OpenAI's API, with vLLM's members."""
        return {"object": "list", "data": [self._card(name) for name in self.names]}

    def _card(self, name: str) -> dict[str, Any]:
        model = self.names[0]
        card = {"id": name, "object": "model", "created": int(time.time()), "owned_by": "vllm"}
        if name == model:
            return {**card, "root": model, "parent": None, "max_model_len": self.longest}
        return {**card, "root": name, "parent": model, "max_model_len": None}
