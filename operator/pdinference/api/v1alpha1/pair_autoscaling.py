"""`spec.autoscaling`: what holds for P and D together."""

from pdinference.api.v1alpha1.base import ApiModel
from pdinference.api.v1alpha1.scale_to_zero import ScaleToZero


class PairAutoscaling(ApiModel):
    """What holds for P and D together, besides the `autoscaling` of each."""

    scale_to_zero: ScaleToZero | None = None
    """No pods while nobody asks. Default: never fewer than minReplicas."""
