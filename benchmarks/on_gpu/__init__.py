"""The router in front of real vLLMs on one GPU, beside vllm-router."""
