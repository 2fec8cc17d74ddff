// IMG: an image is sharpened where it has edges and blurred where it has none. Images are square,
// row-major, with values from 0 to 1.

static __device__ int clamped(int i, int side) { return i < 0 ? 0 : i >= side ? side - 1 : i; }

// A blur with a window of `diameter` by `diameter` weights; the border is repeated.
extern "C" __global__ void blur(const float* image, float* out, int side, const float* weights,
                                int diameter) {
  const int radius = diameter / 2;
  for (int i = blockIdx.y * blockDim.y + threadIdx.y; i < side; i += gridDim.y * blockDim.y)
    for (int j = blockIdx.x * blockDim.x + threadIdx.x; j < side; j += gridDim.x * blockDim.x) {
      float sum = 0.0f;
      for (int y = -radius; y <= radius; ++y)
        for (int x = -radius; x <= radius; ++x)
          sum += image[clamped(i + y, side) * side + clamped(j + x, side)] *
                 weights[(y + radius) * diameter + x + radius];
      out[i * side + j] = sum;
    }
}

// The size of the gradient by Sobel's two filters; the border is repeated.
extern "C" __global__ void sobel(const float* image, float* out, int side) {
  for (int i = blockIdx.y * blockDim.y + threadIdx.y; i < side; i += gridDim.y * blockDim.y)
    for (int j = blockIdx.x * blockDim.x + threadIdx.x; j < side; j += gridDim.x * blockDim.x) {
      float dx = 0.0f, dy = 0.0f;
      for (int y = -1; y <= 1; ++y)
        for (int x = -1; x <= 1; ++x) {
          const float value = image[clamped(i + y, side) * side + clamped(j + x, side)];
          dx += value * x * (y == 0 ? 2 : 1);
          dy += value * y * (x == 0 ? 2 : 1);
        }
      out[i * side + j] = sqrtf(dx * dx + dy * dy);
    }
}

// The extremes of values that are not negative: as such, floats are in the order of their bits.
extern "C" __global__ void maximum(const float* x, float* extreme, int n) {
  float largest = 0.0f;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    largest = fmaxf(largest, x[i]);
  atomicMax((int*)extreme, __float_as_int(largest));
}

extern "C" __global__ void minimum(const float* x, float* extreme, int n) {
  float smallest = 3.4e38f;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    smallest = fminf(smallest, x[i]);
  atomicMin((int*)extreme, __float_as_int(smallest));
}

// Stretches a mask to five times the range from 0 to 1, and cuts it off there.
extern "C" __global__ void extend(float* x, const float* least, const float* most, int n) {
  const float low = least[0], range = most[0] - low;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    x[i] = fminf(5.0f * (x[i] - low) / range, 1.0f);
}

extern "C" __global__ void unsharpen(const float* image, const float* blurred, float* out,
                                     float amount, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    out[i] = fminf(fmaxf(image[i] * (1.0f + amount) - blurred[i] * amount, 0.0f), 1.0f);
}

// x where the mask is 1, y where it is 0.
extern "C" __global__ void combine(const float* x, const float* y, const float* mask, float* out,
                                   int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    out[i] = x[i] * mask[i] + y[i] * (1.0f - mask[i]);
}
