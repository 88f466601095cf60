"""What the autoscaling presets do to latency and cost: a discrete-event simulation of a P/D fleet, without a cluster.

    uv run --no-sync python -m benchmarks.autoscaling

The simulator is that of `pdinference_advise.simulation`. Here are loads, the HPA, policies of scaling, and judgement.
"""
