"""The code floor: a pattern and a template become one CUDA-C kernel."""
