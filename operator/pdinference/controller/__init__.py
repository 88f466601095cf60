"""What all reconciles use: work queue, workers, status writes, Events, metrics, supervision of tasks."""
