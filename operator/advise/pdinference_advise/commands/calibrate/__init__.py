"""`pdinference calibrate`: measures the steps of vLLM on a device, and fits the model of a step to them."""
