"""What the autoscaling presets do to latency and cost: a discrete-event simulation of a P/D fleet, without a cluster.

    uv run --no-sync python -m benchmarks.autoscaling

The policies are the real ones: the HPA algorithm as Kubernetes documents it, the operator's own presets and signals.
"""
