"""Pods of large models may take longer to start."""

from pdinference.api.v1alpha1 import Spec, defaults


def _spec(**engine: int) -> Spec:
    architecture = {"config": {}, "weightsBytes": 700_000_000_000}
    model = {"source": {"path": "/models/any"}, "architecture": architecture}
    return Spec.model_validate({"model": model, "engine": engine})


def test_an_hour_unless_the_weights_are_large_or_the_user_says_otherwise() -> None:
    small = Spec.model_validate({"model": {"source": {"path": "/models/any"}}})
    assert defaults.startup_seconds(small) == 3600
    assert defaults.startup_seconds(_spec()) == 900 + 14000
    assert defaults.startup_seconds(_spec(startupSeconds=120)) == 120
