"""Writes a copy of KEDA with one scaler, that for Prometheus, and a go.mod that takes it: `python trim.py FOLDER`.

KEDA has about 80 scalers, which bring half of its 3,329 packages, the large ones among them. What the tests are
about stays as KEDA released it: its controller, its scale loop, its cache of metrics, its scale client, and the
Prometheus scaler. What goes are the files of the other scalers and their cases in the factory of scalers.
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

MODULE = "github.com/kedacore/keda/v2"
SCALERS, FACTORY = "pkg/scalers", "pkg/scaling/scalers_builder.go"
KEPT = {"scaler.go", "prometheus_scaler.go"}
TYPE = "prometheus"
# A file of the Azure queue scaler has it for all.
SHARED = (
    'package scalers\n\nimport "k8s.io/api/autoscaling/v2"\n\nvar externalMetricType = v2.ExternalMetricSourceType\n'
)
FEWEST_CASES = 50


def main(target: Path) -> None:
    """Write the copy, and go.mod and go.sum beside it."""
    here = Path(__file__).parent
    shutil.copytree(_source(here), target / "keda", ignore=shutil.ignore_patterns("*_test.go", "tests"))
    for path in target.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)  # Go's cache of modules is read-only
    _drop_scalers(target / "keda" / SCALERS)
    _drop_cases(target / "keda" / FACTORY)
    replaced = f"\nreplace {MODULE} => {target / 'keda'}\n"
    (target / "go.mod").write_text((here / "go.mod").read_text(encoding="utf-8") + replaced, encoding="utf-8")
    shutil.copy(here / "go.sum", target / "go.sum")


def _source(here: Path) -> Path:
    """Where Go keeps the released module, which it has checked by go.sum."""
    command = ["go", "mod", "download", "-json", MODULE]
    answer = subprocess.run(command, cwd=here, check=True, capture_output=True, text=True)
    return Path(json.loads(answer.stdout)["Dir"])


def _drop_scalers(folder: Path) -> None:
    for path in folder.glob("*.go"):
        if path.name not in KEPT:
            path.unlink()
    (folder / "shared.go").write_text(SHARED, encoding="utf-8")


def _drop_cases(factory: Path) -> None:
    text = factory.read_text(encoding="utf-8")
    kept, dropped = re.subn(rf'\t(?:// TODO[^\n]*\n\t)?case "(?!{TYPE}")[^"]+":\n\t\treturn [^\n]+\n', "", text)
    if dropped < FEWEST_CASES or f'case "{TYPE}":' not in kept:
        raise SystemExit(f"KEDA's factory of scalers is written otherwise: {dropped} cases found")
    factory.write_text(kept, encoding="utf-8")


main(Path(sys.argv[1]))
