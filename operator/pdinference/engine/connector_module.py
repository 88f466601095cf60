"""How vLLM gets a connector of ours: as an argument of a launcher, which writes it to a file and becomes vLLM."""

from functools import cache
from importlib.resources import files

from pdinference.engine.command import literal

_FOLDER = "/tmp/pdinference"  # noqa: S108 - a volume of the pod's own


def with_connector(program: tuple[str, ...], module: str, script: str) -> tuple[str, ...]:
    """What runs vLLM where it, and each process that it starts, can import a script of ours under a module's name.

    The image need not have it, and a file would need a ConfigMap, to which the operator has no right.
    """
    launcher, connector = (literal(_script(name)) for name in ("with_module", script))
    return ("python3", "-I", "-c", launcher, module, connector, _FOLDER, *program)


@cache
def _script(name: str) -> str:
    return files("pdinference.engine").joinpath(f"scripts/{name}.py").read_text(encoding="utf-8")
