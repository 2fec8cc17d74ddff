// B&S: the price of a European call by Black and Scholes, in double precision.

// The cumulative normal distribution by Abramowitz and Stegun's polynomial, 26.2.17.
static __device__ double normal_cdf(double d) {
  const double a1 = 0.31938153, a2 = -0.356563782, a3 = 1.781477937, a4 = -1.821255978,
               a5 = 1.330274429, one_over_sqrt_2pi = 0.39894228040143267794;
  const double k = 1.0 / (1.0 + 0.2316419 * fabs(d));
  const double tail = one_over_sqrt_2pi * exp(-0.5 * d * d) *
                      (k * (a1 + k * (a2 + k * (a3 + k * (a4 + k * a5)))));
  return d > 0.0 ? 1.0 - tail : tail;
}

// Prices of `n` calls whose underlyings stand at `x`; interest, volatility, time and strike.
extern "C" __global__ void bs(const double* x, double* y, int n, double r, double v, double t,
                              double k) {
  const double root = v * sqrt(t), discounted = k * exp(-r * t);
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    const double d1 = (log(x[i] / k) + (r + 0.5 * v * v) * t) / root;
    y[i] = x[i] * normal_cdf(d1) - discounted * normal_cdf(d1 - root);
  }
}
