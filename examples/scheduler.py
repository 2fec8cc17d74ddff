"""`fs.dag`: an image is sharpened where it has edges, by kernels that nobody put on streams.

    python examples/scheduler.py

runs on a GPU, or without one on the CPU, and prints the DAG of its kernels.
"""

from __future__ import annotations

import numpy as np

import fusionstitch as fs

CODE = """
static __device__ int clamped(int i, int side) { return i < 0 ? 0 : i >= side ? side - 1 : i; }

// A blur with a window of 2 * radius + 1 pixels each way.
extern "C" __global__ void blur(const float* image, float* out, int side, int radius) {
  const int i = blockIdx.y * blockDim.y + threadIdx.y, j = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= side || j >= side) return;
  float sum = 0.0f;
  for (int y = -radius; y <= radius; ++y)
    for (int x = -radius; x <= radius; ++x)
      sum += image[clamped(i + y, side) * side + clamped(j + x, side)];
  out[i * side + j] = sum / ((2 * radius + 1) * (2 * radius + 1));
}

// How much a pixel differs from its neighbours, from 0 to 1.
extern "C" __global__ void edges(const float* image, float* out, int side) {
  const int i = blockIdx.y * blockDim.y + threadIdx.y, j = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= side || j >= side) return;
  const float right = image[i * side + clamped(j + 1, side)];
  const float below = image[clamped(i + 1, side) * side + j];
  const float here = image[i * side + j];
  out[i * side + j] = fminf(4.0f * (fabsf(right - here) + fabsf(below - here)), 1.0f);
}

extern "C" __global__ void sharpen(const float* image, const float* blurred, float* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = fminf(fmaxf(1.5f * image[i] - 0.5f * blurred[i], 0.0f), 1.0f);
}

// x where the mask is 1, y where it is 0.
extern "C" __global__ void mix(const float* x, const float* y, const float* mask, float* out,
                               int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = x[i] * mask[i] + y[i] * (1.0f - mask[i]);
}
"""
READ, WRITE = "const pointer float", "out pointer float"


def sharpened(image: np.ndarray, d: fs.dag.Scheduler) -> np.ndarray:
    """The image, sharp at its edges and soft elsewhere: (side, side) float32 from 0 to 1."""
    side, n = len(image), image.size
    blur = d.kernel(CODE, "blur", f"{READ}, {WRITE}, sint32, sint32")
    edges = d.kernel(CODE, "edges", f"{READ}, {WRITE}, sint32")
    sharpen = d.kernel(CODE, "sharpen", f"{READ}, {READ}, {WRITE}, sint32")
    mix = d.kernel(CODE, "mix", f"{READ}, {READ}, {READ}, {WRITE}, sint32")

    x = d.array(image, name="image")
    soft, softer, mask, sharp, out = (
        d.array(image.shape, name=name) for name in ("soft", "softer", "mask", "sharp", "out")
    )
    tiles, square = (-(-side // 16), -(-side // 16)), (16, 16)
    blocks = -(-n // 256)
    blur(tiles, square)(x, soft, side, 1)
    blur(tiles, square)(x, softer, side, 3)
    edges(tiles, square)(soft, mask, side)
    sharpen(blocks, 256)(x, softer, sharp, n)
    mix(blocks, 256)(sharp, soft, mask, out, n)
    return np.asarray(out)


def main() -> None:
    side = 64
    row = np.linspace(0, 1, side, dtype=np.float32)
    image = np.where(row[:, None] > row, row, 1 - row).astype(np.float32)
    d = fs.dag.Scheduler()
    result = sharpened(image, d)
    print(f"{d.device}: {result.shape[0]} x {result.shape[1]} pixels, mean {result.mean():.3f}")
    graph = d.graph()
    for edge, (before, after) in zip(graph.edges, graph.pairs(), strict=True):
        print(f"{before} -> {after} ({', '.join(edge.arrays)})")
    print(f"{len(graph.vertices)} kernels on {graph.streams} streams, {graph.waits} events")


if __name__ == "__main__":
    main()
