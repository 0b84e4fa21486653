#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Everything about several GPUs of one machine, in under 8 minutes: the package's tests over NCCL and PeerGroup, then
# results and times of every strategy beside PyTorch's context parallel.
#
#   perf/run_multi_gpu.sh FOLDER [GPUS]    FOLDER gets multi_gpu.json and the logs; GPUS: all there are
#
# PYTHONPATH has to show the package and its border, such as build/cuda/python; PyTorch with NCCL is needed. NVLink
# multicast stays off, which NCCL and PyTorch would use where they may: on machines that share GPUs it can take them out
# of service.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:?usage: perf/run_multi_gpu.sh FOLDER [GPUS]}
gpus=${2:-$(python3 -c 'import torch; print(torch.cuda.device_count())')}
mkdir -p "$out"
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 OMP_NUM_THREADS=4 PYTHONUNBUFFERED=1
for messages in nccl peers; do
  timeout 75 python3 tests/bindings/python/distributed_ranks.py "$messages" "$gpus" 2>&1 | tee "$out/tests_$messages.log"
done
timeout 330 python3 perf/multi_gpu_torch.py --ranks "$gpus" --out "$out/multi_gpu.json" --seconds 270 2>&1 |
  tee "$out/times.log"
