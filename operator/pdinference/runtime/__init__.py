"""The operator process: start, watches, leader election, HTTPS endpoint, health, stop."""
