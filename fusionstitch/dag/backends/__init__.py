"""What the scheduler runs on: CUDA through CuPy, or the emulator."""
