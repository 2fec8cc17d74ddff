// DL: two images through two convolutions and a pooling each, joined and weighted to one number.
// An image is [side][side][channels]; of what does not fill a window nothing is made.

// ReLU of a convolution of 3 by 3 with a stride; weights are [out_channels][3][3][channels].
extern "C" __global__ void conv(float* out, const float* x, const float* weights, int side,
                                int channels, int out_side, int out_channels, int stride) {
  for (int c = blockIdx.z * blockDim.z + threadIdx.z; c < out_channels;
       c += gridDim.z * blockDim.z)
    for (int i = blockIdx.y * blockDim.y + threadIdx.y; i < out_side;
         i += gridDim.y * blockDim.y)
      for (int j = blockIdx.x * blockDim.x + threadIdx.x; j < out_side;
           j += gridDim.x * blockDim.x) {
        float sum = 0.0f;
        for (int y = 0; y < 3; ++y)
          for (int column = 0; column < 3; ++column)
            for (int k = 0; k < channels; ++k)
              sum += x[((i * stride + y) * side + j * stride + column) * channels + k] *
                     weights[((c * 3 + y) * 3 + column) * channels + k];
        out[(i * out_side + j) * out_channels + c] = fmaxf(sum, 0.0f);
      }
}

// Means of windows of 5 by 5 that do not overlap.
extern "C" __global__ void pool(float* out, const float* x, int side, int out_side, int channels) {
  for (int c = blockIdx.z * blockDim.z + threadIdx.z; c < channels; c += gridDim.z * blockDim.z)
    for (int i = blockIdx.y * blockDim.y + threadIdx.y; i < out_side;
         i += gridDim.y * blockDim.y)
      for (int j = blockIdx.x * blockDim.x + threadIdx.x; j < out_side;
           j += gridDim.x * blockDim.x) {
        float sum = 0.0f;
        for (int y = 0; y < 5; ++y)
          for (int column = 0; column < 5; ++column)
            sum += x[((i * 5 + y) * side + j * 5 + column) * channels + c];
        out[(i * out_side + j) * channels + c] = sum / 25.0f;
      }
}

extern "C" __global__ void concat(float* out, const float* x, const float* y, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    out[i] = x[i];
    out[n + i] = y[i];
  }
}

// Adds the sum of x * weights to `total`. Blocks are whole warps.
extern "C" __global__ void dot(const float* x, const float* weights, float* total, int n) {
  float sum = 0.0f;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    sum += x[i] * weights[i];
  for (int offset = 16; offset > 0; offset /= 2)
    sum += __shfl_down_sync(0xffffffffu, sum, offset);
  if (threadIdx.x % 32 == 0) atomicAdd(total, sum);
}
