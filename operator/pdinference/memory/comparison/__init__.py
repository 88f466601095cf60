"""The same model on other GPUs: common products, and the GPUs of P and D as ordinary vLLM servers."""
