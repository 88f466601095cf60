"""Our router beside vllm-router, sglang-router and llm-d's, in front of the same servers."""
