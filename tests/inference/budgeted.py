"""A resource with a GPU budget."""

SCALED = {"autoscaling": {"maxReplicas": 6, "targets": {"kvDemand": 80}}}
BUDGET = {"autoscaling": {"gpuBudget": 8}, "parameter": SCALED, "decode": SCALED}
IMAGE = {"image": "v:2"}
