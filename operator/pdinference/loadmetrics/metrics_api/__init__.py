"""The external metrics API: the signals for HorizontalPodAutoscalers."""
