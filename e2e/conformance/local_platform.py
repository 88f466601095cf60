"""What platforms bring and the local cluster lacks, from Go modules: Kueue, and the definition of an HTTPRoute."""

import tempfile
from pathlib import Path
from typing import Any, Final

import yaml

from e2e.cluster import Cluster, build, images
from e2e.console import headline, say
from e2e.go_modules import gateway_api, module_folder
from e2e.kubectl import Kubectl

KUEUE: Final = "kueue"
"""The tool that builds it."""
_MODULE: Final = "sigs.k8s.io/kueue"
_IMAGE: Final = "localhost/pdinference/kueue"
_PROGRAM: Final = "manager"
"""What the chart starts."""
_NAMESPACE: Final = "kueue-system"


def install(cluster: Cluster, kubectl: Kubectl) -> None:
    """Install both, unless they are there."""
    headline("Kueue from its chart, and the Gateway API's HTTPRoute")
    kubectl.run("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump(gateway_api("httproutes")))
    build.prepare([KUEUE])
    tool = build.TOOLS[KUEUE]
    tag = tool.folder.name
    _load(cluster, f"{_IMAGE}:{tag}", tool.folder / KUEUE)
    chart = module_folder(_MODULE, tool.source) / "charts" / "kueue"
    say(f"helm upgrade --install {KUEUE} charts/kueue -n {_NAMESPACE}, from the module {_MODULE}")
    words = ("helm", "upgrade", "--install", KUEUE, chart, "-n", _NAMESPACE, "--create-namespace", "--wait")
    kubectl.command(*words, "--timeout", "4m", "--values", "-", stdin=yaml.safe_dump(_values(tag)), timeout=300)


def _load(cluster: Cluster, image: str, program: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        named, archive = Path(folder) / _PROGRAM, Path(folder) / "image.tar"
        named.symlink_to(program)
        images.write_archive(archive, image, named)
        cluster.load_image(archive)


def _values(tag: str) -> dict[str, Any]:
    """Of the chart: our image, which has a program and no user, and less than a quarter of the local cluster."""
    manager = {
        "image": {"repository": _IMAGE, "tag": tag, "pullPolicy": "IfNotPresent"},
        "podSecurityContext": {"runAsNonRoot": True, "runAsUser": 65532},
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
    }
    return {"controllerManager": {"manager": manager}}
