"""The external metrics API, which serves the signals to HorizontalPodAutoscalers."""
