"""Reading the metrics of pods: bounded in time, bytes and lines, because a pod is not trusted."""
