"""Common parts of all reconciles: work queue, workers, status writes, Events, metrics, supervision of tasks."""
