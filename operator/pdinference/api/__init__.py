"""The user-facing resource and the names that everything else refers to."""
