#!/bin/bash
# Measure tfopt on a GPU, most valuable first, where tfopt, TensorFlow with CUDA and TensorRT are installed:
#   bash tools/gpu/measure.sh FOLDER
# Each step has a time limit, and gets what earlier steps left of theirs. Each part takes 13 minutes at most; PART=1 runs one of them.
# The line of a step is in FOLDER/results.txt as soon as it ends, and its output in FOLDER/STEP.log. The same command again
# repeats no step that succeeded. `python tools/gpu/tables.py FOLDER` prints the tables.
# The script stops at once if TensorFlow sees no GPU. REHEARSE=1 tries all commands on a CPU, with tiny sizes.
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "${1:?a folder for the results}" && cd "$1" || exit 2
results=$PWD size=224 batch=64 train=512 eval=128 epochs=6 seconds=1 networks="convolutions transformer efficientnet" factor=${LIMITS:-1}
if [ -n "$REHEARSE" ]; then
  export IMAGE_SIZE=32 RESNET=small
  size=32 batch=16 train=64 eval=64 epochs=1 seconds=0.2 networks="convolutions" factor=${LIMITS:-20}
fi
examples=$results/examples module=$here/resnet.py model=$results/trained
deadline=$(date +%s)
step() {
  local name=$1 limit=$2 start code
  shift 2
  deadline=$((deadline + limit * factor))
  grep -qs "^$name: exit code 0," "$results/results.txt" && return 0
  start=$(date +%s)
  timeout -k 5 $((deadline - start)) "$@" > "$results/$name.log" 2>&1
  code=$?
  echo "$name: exit code $code, $(($(date +%s) - start)) s" | tee -a "$results/results.txt"
  return $code
}
part() {
  [ "${PART:-$1}" = "$1" ]
}
optimize() {
  step "optimize_$1" "$2" tfopt run optimize_gpu --engine process --jobs 8 --set "model=$3" --set "examples=$4" \
    --set "seconds=$seconds" --set "destination=$results/pushed-$1" --root "$results/run-$1"
}
# One process with all models in turns: ratios also where the run did not end in time.
times() {
  step "times_$1" "$2" python "$here/time_models.py" "$3" "$results/run-$1"/artifacts/*/{folded,optimized,compiled,cast,converted}/* \
    --examples "$4" --batch-sizes 1 32
}
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader > gpu.txt 2>&1
# Nothing of it uses the GPU.
CUDA_VISIBLE_DEVICES=-1 python "$here/waves.py" "$examples" --size "$size" --train "$train" --eval "$eval" > examples.log 2>&1 &
step check 60 python "$here/check.py" || [ -n "$REHEARSE" ] || exit 1
wait $! || exit 1

if part 1; then
  step train 90 tfopt train --examples "$examples" --module "$module" --trained "$model" --batch-size "$batch" --epochs "$epochs" || exit 1
  optimize resnet 400 "$model" "$examples"
  times resnet 100 "$model" "$examples"
  step steps_free 130 python "$here/time_steps.py" "$examples" "$module" --batch-size "$batch"
fi
if part 2; then
  # shellcheck disable=SC2086  # a word for each network
  CUDA_VISIBLE_DEVICES=-1 step networks 60 python "$here/networks.py" "$results/networks" $networks --size "$size" --records "$eval"
  for name in $networks; do
    optimize "$name" 220 "$results/networks/$name.keras" "$results/networks/$name-examples"
  done
fi
if part 3; then
  step tests 190 env -C "$here/../.." python -m pytest -m gpu -q -s tests/gpu
  step auto 150 tfopt train --examples "$examples" --module "$module" --trained "$results/auto" --batch-size "$batch" --epochs 1 \
    --precision auto --jit-compile auto --no-deterministic
  step steps_deterministic 110 python "$here/time_steps.py" "$examples" "$module" --batch-size "$batch" --deterministic
  step profile 160 tfopt profile_training --examples "$examples" --module "$module" --plan "$results/plan" --batch-size "$batch" --seconds "$seconds"
  step memory 90 tfopt train --examples "$examples" --module "$module" --trained "$results/limited" --batch-size 0 \
    --batch-search fastest --gpu-memory-mb 8000 --epochs 1
fi
