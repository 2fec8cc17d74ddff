// ML: two classifiers of the same rows, ridge regression and naive Bayes, and the class that both
// together prefer. Matrices are row-major: `n` rows of FEATURES or CLASSES values.

#define FEATURES 200
#define CLASSES 10
#define COLUMNS 8  // that a block standardises at once: a sector of memory
#define MOST_THREADS 1024

// z is x with mean 0 and standard deviation 1 in each column.
extern "C" __global__ void rr_1(const float* x, float* z, int n) {
  __shared__ float sums[MOST_THREADS], squares[MOST_THREADS];
  const int column = threadIdx.x % COLUMNS, first = threadIdx.x / COLUMNS;
  const int rows = blockDim.x / COLUMNS;
  for (int group = blockIdx.x; group < FEATURES / COLUMNS; group += gridDim.x) {
    const int j = group * COLUMNS + column;
    float sum = 0.0f, square = 0.0f;
    for (int i = first; i < n; i += rows) {
      const float value = x[(size_t)i * FEATURES + j];
      sum += value;
      square += value * value;
    }
    sums[threadIdx.x] = sum;
    squares[threadIdx.x] = square;
    __syncthreads();
    double total = 0.0, total_square = 0.0;
    for (int k = 0; k < rows; ++k) {
      total += sums[k * COLUMNS + column];
      total_square += squares[k * COLUMNS + column];
    }
    __syncthreads();  // the next group writes there
    const double mean = total / n;
    const float center = (float)mean;
    const float scale = (float)(1.0 / sqrt(total_square / n - mean * mean));
    for (int i = first; i < n; i += rows)
      z[(size_t)i * FEATURES + j] = (x[(size_t)i * FEATURES + j] - center) * scale;
  }
}

// The product of rows of x with rows of `weights`: a score for each row and class.
static __device__ void scores(const float* x, const float* weights, float* out, int n) {
  for (int k = blockIdx.x * blockDim.x + threadIdx.x; k < n * CLASSES;
       k += gridDim.x * blockDim.x) {
    const float* row = x + (size_t)(k / CLASSES) * FEATURES;
    const float* weight = weights + k % CLASSES * FEATURES;
    float sum = 0.0f;
    for (int j = 0; j < FEATURES; ++j) sum += row[j] * weight[j];
    out[k] = sum;
  }
}

extern "C" __global__ void nb_1(const float* x, const float* weights, float* out, int n) {
  scores(x, weights, out, n);
}

extern "C" __global__ void rr_2(const float* x, const float* weights, float* out, int n) {
  scores(x, weights, out, n);
}

extern "C" __global__ void nb_2(const float* x, float* largest, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    float most = x[i * CLASSES];
    for (int j = 1; j < CLASSES; ++j) most = fmaxf(most, x[i * CLASSES + j]);
    largest[i] = most;
  }
}

// The logarithm of the sum of exponentials of each row.
extern "C" __global__ void nb_3(const float* x, const float* largest, float* out, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    float sum = 0.0f;
    for (int j = 0; j < CLASSES; ++j) sum += expf(x[i * CLASSES + j] - largest[i]);
    out[i] = logf(sum) + largest[i];
  }
}

extern "C" __global__ void rr_3(float* x, const float* bias, int n) {
  for (int k = blockIdx.x * blockDim.x + threadIdx.x; k < n * CLASSES;
       k += gridDim.x * blockDim.x)
    x[k] += bias[k % CLASSES];
}

extern "C" __global__ void nb_4(float* x, const float* logarithm, int n) {
  for (int k = blockIdx.x * blockDim.x + threadIdx.x; k < n * CLASSES;
       k += gridDim.x * blockDim.x)
    x[k] = expf(x[k] - logarithm[k / CLASSES]);
}

extern "C" __global__ void softmax(float* x, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    float* row = x + i * CLASSES;
    float most = row[0], sum = 0.0f;
    for (int j = 1; j < CLASSES; ++j) most = fmaxf(most, row[j]);
    for (int j = 0; j < CLASSES; ++j) sum += row[j] = expf(row[j] - most);
    for (int j = 0; j < CLASSES; ++j) row[j] /= sum;
  }
}

// The class with the largest sum of both classifiers' probabilities.
extern "C" __global__ void argmax(const float* x, const float* y, int* out, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    int best = 0;
    for (int j = 1; j < CLASSES; ++j)
      if (x[i * CLASSES + j] + y[i * CLASSES + j] > x[i * CLASSES + best] + y[i * CLASSES + best])
        best = j;
    out[i] = best;
  }
}
