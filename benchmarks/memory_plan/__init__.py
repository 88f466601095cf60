"""How right `pdinference plan` is: tiny models on CPU, and starts on GPUs that were logged."""
