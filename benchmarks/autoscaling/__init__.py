"""What the autoscaling presets do to latency and cost: a discrete-event simulation of a P/D fleet, without a cluster.

    uv run --no-sync python -m benchmarks.autoscaling

The simulator is the package's (`pdinference.simulation`); here are loads, other policies of scaling, and judgement.
"""
