#!/bin/sh
# What needs two GPUs or more, within two minutes: sharded programs and processes against jax.jit,
# and one small tuning run whose patterns the GPUs share.
set -u
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
export XLA_PYTHON_CLIENT_PREALLOCATE=false JAX_PLATFORMS=cuda,cpu
timeout 75 "$python" -m pytest -q -m gpu -n 8 -p no:benchmark -p no:cacheprovider \
  tests/behaviour/test_several_devices.py
tests=$?
FUSIONSTITCH_PROGRESS=1 timeout 40 "$python" -m fusionstitch tune \
  examples/norms.py:backward examples/softmax.py:rows --budget 8 --json "${OUT:-.}/tune.json"
tuned=$?
exit $((tests + tuned))
