"""Checks within seconds, from headers and sizes, whether a folder has a model that vLLM can load.

vLLM supports more formats; unknown ones are accepted. Sources: `_prepare_weights` in
vllm/model_executor/model_loader/default_loader.py, `get_config` in vllm/transformers_utils/config.py.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from pdinference.models.errors import ModelFilesError, listed, reading
from pdinference.models.files.json_files import MOST_FILES
from pdinference.models.files.local_files import files_in_folder, indexed_files, read_config
from pdinference.models.files.safetensors import Allowance, read_header, refuse_pointer
from pdinference.models.files.torch_files import refuse_cut_off
from pdinference.models.files.weight_files import SAFETENSORS, weight_files

_WEIGHTS = (".safetensors", ".gguf", ".pth", ".ckpt", ".npz", ".h5", ".tensors", ".distcp")
_FORMATS = frozenset({"auto", "hf", "safetensors", "fastsafetensors", "mistral"})
"""Values of `load-format` whose files can be checked, and whose loaders reject damaged files."""
_MOST_LOOKED_AT = 1000
"""Maximum number of directory entries to read for advice in a message."""
_AT_ONCE = 16  # network file systems have a high latency, but serve many requests in parallel


class _Layout(NamedTuple):
    """Names of the files of a model."""

    config: str
    weights: str
    index_file: str


_HUGGING_FACE = _Layout("config.json", "*.safetensors", "model.safetensors.index.json")
_MISTRAL = _Layout("params.json", "consolidated*.safetensors", "consolidated.safetensors.index.json")
_CONFIGS = frozenset({_HUGGING_FACE.config, _MISTRAL.config})
_WITHIN = ("*/config.json", "snapshots/*/config.json", "models--*/snapshots/*/config.json")
"""Paths of the model if the folder is its parent, or a cache of the hub's client."""


@dataclass(frozen=True, slots=True)
class Expected:
    """Files that vLLM will look for.

    Attributes:
        field: Field of the resource that names the folder.
        load_format: vLLM's load format.
        config: Whether the config must be in the folder.
    """

    field: str = "the path"
    load_format: str = "auto"
    config: bool = True


def check_folder(folder: Path, expected: Expected) -> int:
    """Check the files that vLLM will load.

    Returns:
        Number of checked weight files.

    Raises:
        ModelFilesError: vLLM cannot load the model.
    """
    with reading(folder):
        if folder.is_file():  # a plugin may load a single file
            refuse_pointer(folder)
            return 0
        if not folder.is_dir():
            raise ModelFilesError(_absent(folder, expected.field))
        names = frozenset(entry.name for entry in islice(folder.iterdir(), MOST_FILES + 1))
        if len(names) > MOST_FILES:
            raise ModelFilesError(f"{folder} has more than {MOST_FILES:,} files. Check {expected.field}.")
        *others, last = _layouts(folder, names, expected.load_format)
        for layout in others:
            with suppress(ModelFilesError):
                return _check(folder, names, layout, expected)
        return _check(folder, names, last, expected)


def _layouts(folder: Path, names: Collection[str], load_format: str) -> Iterator[_Layout]:
    """Layouts in which vLLM may load these files. If there are several, vLLM's version decides; one must be valid."""
    consolidated = any(folder.glob(_MISTRAL.weights))
    mistral = consolidated and _MISTRAL.config in names
    if mistral or load_format == "mistral":
        yield _MISTRAL
    if load_format == "mistral" or (mistral and _HUGGING_FACE.config not in names):
        return
    if consolidated:
        yield _MISTRAL._replace(config=_HUGGING_FACE.config)
    yield _HUGGING_FACE


def _check(folder: Path, names: Collection[str], layout: _Layout, expected: Expected) -> int:
    if expected.config:
        _check_config(folder, names, layout, expected.field)
    return _check_weights(folder, names, layout) if expected.load_format in _FORMATS else 0


def _check_config(folder: Path, names: Collection[str], layout: _Layout, field: str) -> None:
    if layout.config in names:
        refuse_pointer(folder / layout.config)
        read_config(folder / layout.config)
    elif not _CONFIGS.intersection(names) and not any(name.endswith(".gguf") for name in names):
        inner = sorted(file.parent for pattern in _WITHIN for file in islice(folder.glob(pattern), _MOST_LOOKED_AT))
        advice = f"Set {field} to the folder of the model, probably {inner[0]}." if inner else f"Check {field}."
        raise ModelFilesError(f"{folder} has no config.json, which vLLM needs. It contains {_listed(names)}. {advice}")


def _check_weights(folder: Path, names: Collection[str], layout: _Layout) -> int:
    found = sorted(file for file in folder.glob(layout.weights) if not file.name.startswith("."))
    if not found and weight_files(names).suffix != SAFETENSORS and (others := files_in_folder(folder).names):
        _require(refuse_cut_off, [folder / name for name in others])
        return len(others)
    files = indexed_files(folder / layout.index_file) or found
    if not files:
        if any(
            file.name.endswith(_WEIGHTS)
            for pattern in ("*", "*/*")
            for file in islice(folder.glob(pattern), MOST_FILES)
        ):
            return 0  # formats of plugins, and models with all weights in folders of the folder
        raise ModelFilesError(
            f"{folder} has no weights, neither safetensors nor others. It contains {_listed(names)}. Copy the complete "
            "model to it."
        )
    _require(partial(_check_whole, Allowance()), files)
    return len(files)


def _require(check: Callable[[Path], object], files: Collection[Path]) -> None:
    """Raise ModelFilesError if a file fails the check."""

    def problem(file: Path) -> str:
        try:
            check(file)
        except ModelFilesError as error:
            return str(error)
        return ""

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        problems = [text for text in pool.map(problem, files) if text]
    if problems:
        more = f" {len(problems) - 1} more of {len(files)} files are also invalid." if len(problems) > 1 else ""
        raise ModelFilesError(problems[0] + more)


def _check_whole(allowance: Allowance, file: Path) -> None:
    header = read_header(file, allowance)
    if header is None:
        return
    wanted = header.size
    with reading(file):
        there = file.stat().st_size
    if there != wanted:
        how = "is truncated" if there < wanted else "is damaged"
        raise ModelFilesError(
            f"{file} {how}: it has {there:,} bytes, but {wanted:,} according to its header. Copy it again."
        )


def _absent(folder: Path, field: str) -> str:
    above = next(parent for parent in folder.parents if parent.is_dir())
    there = _listed(entry.name for entry in islice(above.iterdir(), _MOST_LOOKED_AT))
    return f"{folder} does not exist; {above} contains {there}. Correct {field}, or copy the model to this folder."


def _listed(names: Iterable[str]) -> str:
    return listed(names) or "nothing"
