"""Load of P and D pods: scrapes vLLM, computes signals, and serves them to HPAs as external metrics."""
