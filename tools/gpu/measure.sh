#!/bin/bash
# Measure tfopt on a GPU, most valuable first, where tfopt, TensorFlow with CUDA and TensorRT are installed:
#   bash tools/gpu/measure.sh FOLDER
# Each step has a time limit; its line is in FOLDER/results.txt as soon as it ends, and its output in FOLDER/STEP.log.
# It stops at once if TensorFlow sees no GPU. IMAGE_SIZE=32 RESNET=small ANY_DEVICE=1 tries the script on a CPU.
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "${1:?a folder for the results}" && cd "$1" || exit 2
results=$PWD size=${IMAGE_SIZE:-224} batch=${BATCH:-64}
examples=$results/examples module=$here/resnet.py model=$results/trained
step() {
  local name=$1 limit=$2 start code
  shift 2
  start=$(date +%s)
  timeout -k 5 "$limit" "$@" > "$results/$name.log" 2>&1
  code=$?
  echo "$name: exit code $code, $(($(date +%s) - start)) s" | tee -a "$results/results.txt"
  return $code
}
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader > gpu.txt 2>&1
step check 90 python "$here/check.py" || [ -n "$ANY_DEVICE" ] || exit 1
step examples 120 python "$here/waves.py" "$examples" --size "$size" --train "${TRAIN:-512}" --eval "${EVAL:-128}" || exit 1
step steps_free 240 python "$here/time_steps.py" "$examples" "$module" --batch-size "$batch"
step steps_deterministic 120 python "$here/time_steps.py" "$examples" "$module" --batch-size "$batch" --deterministic
step train 240 tfopt train --examples "$examples" --module "$module" --trained "$model" --batch-size "$batch" --epochs 6 || exit 1
step optimize_gpu 600 tfopt run optimize_gpu --engine process --set "model=$model" --set "examples=$examples" --root "$results/run"
step layout 60 python "$here/time_layout.py" "$model"
networks="efficientnet transformer convolutions"
# shellcheck disable=SC2086  # a word for each network
step networks 120 python "$here/networks.py" "$results/networks" $networks --size "$size" --records "${EVAL:-128}"
for name in $networks; do
  step "optimize_$name" 400 tfopt run optimize_gpu --engine process --set "model=$results/networks/$name.keras" \
    --set "examples=$results/networks/$name-examples" --root "$results/run-$name"
done
step layouts 60 python "$here/time_layout.py" "$results"/run-*/artifacts/fold_batch_norm/folded/*
step profile 300 tfopt profile_training --examples "$examples" --module "$module" --plan "$results/plan" --batch-size "$batch"
step memory 120 tfopt train --examples "$examples" --module "$module" --trained "$results/limited" --batch-size 0 \
  --batch-search fastest --gpu-memory-mb 8000 --epochs 1
cd "$here/../.." && step tests 300 python -m pytest -m gpu -q -s tests/gpu
