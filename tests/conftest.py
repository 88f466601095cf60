"""Fixtures and helpers of all tests."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import settings

from e2e import programs
from e2e.hangs import pytest_exception_interact, pytest_timeout_set_timer  # noqa: F401 - hooks of pytest
from pdinference.api.installation_policy import Policy
from pdinference.api.v1alpha1 import PDInference
from tests.virtual_time import VirtualTimeLoop

REPOSITORY = Path(__file__).parent.parent
BATCH_EXAMPLE = REPOSITORY / "examples" / "batch.yaml"
EXAMPLES = sorted(set((REPOSITORY / "examples").glob("*.yaml")) - {BATCH_EXAMPLE})
"""Those of a PDInference."""

Document = dict[str, Any]
Golden = Callable[[Path, str], None]

# A busy machine may take long over any single example, which says nothing about the code. A commit is judged by the
# same examples each time, so that it does not fail for what another one did; `make explore` looks for new ones.
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None)
settings.load_profile("repeatable")


def pytest_configure() -> None:
    """Let the tests start only what a fresh machine has."""
    programs.restrict()


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loop of a test, by its marker."""
    if item.get_closest_marker("virtual_time"):
        return {"virtual": VirtualTimeLoop}
    return {"asyncio": asyncio.new_event_loop}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write golden files anew instead of comparing")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With --update-golden, only the tests that write such files."""
    if config.getoption("--update-golden"):
        items[:] = [item for item in items if "golden" in getattr(item, "fixturenames", ())]


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compares a text with a golden file, or writes it there (`make generate`)."""

    def compare(file: Path, text: str) -> None:
        if request.config.getoption("--update-golden"):
            file.write_text(text, encoding="utf-8")
        assert text == file.read_text(encoding="utf-8"), "look at the difference, then run `make generate`"

    return compare


def example_documents(path: Path) -> list[Document]:
    """The PDInference documents of an example file."""
    documents = yaml.safe_load_all(path.read_text(encoding="utf-8"))
    return [document for document in documents if document and document["kind"] == "PDInference"]


def together(p: Document | None = None, d: Document | None = None, **limits: Any) -> Document:
    """Both roles autoscaled, and limits for the two."""
    roles = {
        role: {"autoscaling": {"maxReplicas": 4, **(own or {})}} for role, own in (("parameter", p), ("decode", d))
    }
    return {**roles, "autoscaling": limits}


def allowing(
    *folders: str, writable: Iterable[str] = (), code: Mapping[str, str] | None = None, **policy: Any
) -> Policy:
    """A policy with folders of nodes that may be read, others that may be written to, and some for one namespace."""
    read_only = [{"path": folder} for folder in folders]
    written = [{"path": path, "readOnly": False} for path in writable]
    own = [{"path": path, "readOnly": False, "namespaces": [of]} for path, of in (code or {}).items()]
    return Policy.model_validate({"allowedHostPaths": [*read_only, *written, *own], **policy})


def for_every_field(namespace: str) -> Policy:
    """What tests/manifests/every_field.yaml needs in a namespace."""
    return allowing(
        "/data/llama",
        writable=("/models", "/kv"),
        code={"/compiled": namespace},
        routerImages=["registry.example/*"],
        capabilities=["IPC_LOCK"],
    )


FOR_EVERY_FIELD = for_every_field("models")


@pytest.fixture
def document() -> Callable[..., Document]:
    """A minimal valid document, with parts of its spec replaced."""

    def make(name: str = "llama", **spec: Any) -> Document:
        return {
            "apiVersion": "pdinference.io/v1alpha1",
            "kind": "PDInference",
            "metadata": {"name": name, "namespace": "models", "uid": "6f1c", "generation": 1},
            "spec": {"model": {"source": {"path": "/models/llama"}}, **spec},
        }

    return make


@pytest.fixture
def batch_document() -> Callable[..., Document]:
    """A minimal valid PDBatch, with parts of its spec replaced."""

    def make(name: str = "nightly", **spec: Any) -> Document:
        minimal = {
            "inferenceRef": {"name": "llama"},
            "input": {"configMap": {"name": "prompts", "key": "in.jsonl"}},
            "output": {"persistentVolumeClaim": {"claimName": "results"}},
        }
        return {
            "apiVersion": "pdinference.io/v1alpha1",
            "kind": "PDBatch",
            "metadata": {"name": name, "namespace": "models", "uid": "7a2d", "generation": 1},
            "spec": {**minimal, **spec},
        }

    return make


@pytest.fixture
def resource(document: Callable[..., Document]) -> Callable[..., PDInference]:
    """A minimal valid resource, with parts of its spec replaced."""

    def make(name: str = "llama", **spec: Any) -> PDInference:
        return PDInference.model_validate(document(name, **spec))

    return make
