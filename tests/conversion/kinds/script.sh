#!/bin/bash
set -euo pipefail
export HF_TOKEN=hf_0123456789abcdefghij
MODEL=Qwen/Qwen3-32B
TP=${TP:-4}
EXTRA="--max-model-len $((16 * 1024))"
COMMON=(
  --tensor-parallel-size "$TP"
  --gpu-memory-utilization 0.92  # of each GPU
)
[ -n "${DEBUG:-}" ] && COMMON+=(--enforce-eager)
for i in 0 1; do
  CUDA_VISIBLE_DEVICES=$i vllm serve $MODEL $EXTRA "${COMMON[@]}" --port $((8100 + i)) \
    --kv-transfer-config '{"kv_connector": "NixlConnector", "kv_role": "kv_producer"}' > prefill_$i.log 2>&1 &
done
vllm serve $MODEL $EXTRA "${COMMON[@]}" --port 8200 \
  --kv-transfer-config '{"kv_connector": "NixlConnector", "kv_role": "kv_consumer"}' &
  # --max-num-seqs 64 \
  --enable-prefix-caching
python toy_proxy_server.py --port $(cat port) $(( $(nproc) / 2 ))
