"""Building kernels and running them: the emulator on the CPU, CUDA on a GPU."""
