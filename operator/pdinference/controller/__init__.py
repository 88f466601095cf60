"""The running operator: watches, work queue, reconcile, status, events, leader election, health, metrics."""
