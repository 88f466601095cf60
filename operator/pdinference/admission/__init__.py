"""The admission webhook, which rejects invalid resources."""
