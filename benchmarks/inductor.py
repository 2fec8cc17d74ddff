"""Programs of the memory suite in PyTorch, compiled by Inductor: python -m benchmarks.inductor
TARGET FOLDER. Kernels and GPU time are PyTorch's own profiler's."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.row import Row, work_on
from benchmarks.workloads import Workload

MODE = "max-autotune-no-cudagraphs"
PROFILED_CALLS = 4

#: A call of a compiled program, given torch and torch.compile.
Program = Callable[[Any, Callable[[Any], Any]], Callable[[], Any]]


def _normal(torch: Any, *shape: int, dtype: str = "float32", grad: bool = False) -> Any:
    made = torch.randn(*shape, device="cuda", dtype=getattr(torch, dtype))
    return made.requires_grad_(grad)


def _both(torch: Any, forward: Any, inputs: list[Any], grad: Any) -> Callable[[], Any]:
    """The forward program and its gradient with respect to `inputs`."""

    def run() -> Any:
        y = forward(*inputs)
        return y, torch.autograd.grad(y, inputs, grad)

    return run


def softmax(torch: Any, compiled: Any) -> Callable[[], Any]:
    x = _normal(torch, 8192, 4096)
    run = compiled(lambda x: torch.softmax(x, dim=-1))
    return lambda: run(x)


def _layer_norm(torch: Any, x: Any, gamma: Any, beta: Any) -> Any:
    return torch.nn.functional.layer_norm(x, gamma.shape, gamma, beta, 1e-5)


def residual_norm_gelu(torch: Any, compiled: Any) -> Callable[[], Any]:
    x, residual = (_normal(torch, 8192, 4096, dtype="bfloat16") for _ in range(2))
    gamma, beta = (_normal(torch, 4096, dtype="bfloat16") for _ in range(2))
    gelu = torch.nn.functional.gelu
    run = compiled(lambda x, r, g, b: gelu(_layer_norm(torch, x + r, g, b), approximate="tanh"))
    return lambda: run(x, residual, gamma, beta)


def norm_backward(torch: Any, compiled: Any) -> Callable[[], Any]:
    x, dy = (_normal(torch, 16_384, 1024, dtype="bfloat16", grad=i == 0) for i in range(2))
    scales = [_normal(torch, 1024, dtype="bfloat16", grad=True) for _ in range(2)]
    run = compiled(lambda x, g, b: _layer_norm(torch, x, g, b))
    return _both(torch, run, [x, *scales], dy)


def rms_backward(torch: Any, compiled: Any) -> Callable[[], Any]:
    x, dy = (_normal(torch, 16_384, 4096, dtype="bfloat16", grad=i == 0) for i in range(2))
    gamma = _normal(torch, 4096, dtype="bfloat16", grad=True)

    def rms_norm(x: Any, gamma: Any) -> Any:
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + 1e-5)
        return (wide * scale).to(x.dtype) * gamma

    return _both(torch, compiled(rms_norm), [x, gamma], dy)


def batch_backward(torch: Any, compiled: Any) -> Callable[[], Any]:
    x, dy = (_normal(torch, 65_536, 256, grad=i == 0) for i in range(2))
    scales = [_normal(torch, 256, grad=True) for _ in range(2)]

    def batch_norm_relu(x: Any, gamma: Any, beta: Any) -> Any:
        y = torch.nn.functional.batch_norm(x, None, None, gamma, beta, training=True, eps=1e-5)
        return torch.relu(y)

    return _both(torch, compiled(batch_norm_relu), [x, *scales], dy)


def cross_entropy(torch: Any, compiled: Any) -> Callable[[], Any]:
    logits = _normal(torch, 4096, 32_768, dtype="bfloat16", grad=True)
    labels = torch.randint(32_768, (4096,), device="cuda")
    run = compiled(lambda x, y: torch.nn.functional.cross_entropy(x.float(), y))
    return _both(torch, lambda x: run(x, labels), [logits], None)


def adam(torch: Any, compiled: Any) -> Callable[[], Any]:
    norm = [(768,), (768,)]
    attention = [(768, 2304), (2304,), (768, 768), (768,)]
    shapes = [*norm, *attention, *norm, (768, 3072), (3072,), (3072, 768), (768,)] * 12
    params = [_normal(torch, *shape).requires_grad_() for shape in shapes]
    for p in params:
        p.grad = torch.randn_like(p)
    rate = torch.tensor(1e-3, device="cuda")  # a number would be compiled in
    optimizer = torch.optim.Adam(params, lr=rate, foreach=True, capturable=True)
    return compiled(optimizer.step)


def black_scholes(torch: Any, compiled: Any) -> Callable[[], Any]:
    def uniform(low: float, high: float) -> Any:
        return low + (high - low) * torch.rand(10_000_000, device="cuda")

    spot, strike, years = uniform(5, 30), uniform(1, 100), uniform(0.25, 10)

    def cdf(x: Any) -> Any:
        return 0.5 * (1.0 + torch.erf(x * 0.5**0.5))

    def prices(spot: Any, strike: Any, years: Any) -> Any:
        spread = 0.30 * torch.sqrt(years)
        d1 = (torch.log(spot / strike) + (0.02 + 0.5 * 0.30**2) * years) / spread
        d2 = d1 - spread
        discounted = strike * torch.exp(-0.02 * years)
        call = spot * cdf(d1) - discounted * cdf(d2)
        return call, discounted * cdf(-d2) - spot * cdf(-d1)

    run = compiled(prices)
    return lambda: run(spot, strike, years)


PROGRAMS: Mapping[str, Program] = {
    "softmax.py:rows": softmax,
    "norms.py:residual_norm_gelu": residual_norm_gelu,
    "norms.py:backward": norm_backward,
    "norms.py:rms_backward": rms_backward,
    "norms.py:batch_backward": batch_backward,
    "cross_entropy.py:vocabulary": cross_entropy,
    "adam.py:gpt2_small": adam,
    "black_scholes.py:options": black_scholes,
}


def has(target: str) -> bool:
    """Whether there is a PyTorch version of the target, and PyTorch to compile it."""
    from importlib.util import find_spec

    return target in PROGRAMS and find_spec("torch") is not None


def work(workload: Workload, row: Row, options: argparse.Namespace) -> None:
    row.step("import")
    import torch

    from benchmarks.profiling import classified, summed

    torch.manual_seed(0)
    row.step("compile")
    program = PROGRAMS[workload.target](torch, lambda f: torch.compile(f, mode=MODE))
    for _ in range(3):
        program()
    torch.cuda.synchronize()
    row.put(inductor={"torch": torch.__version__, "mode": MODE})
    row.wait()
    row.step("profile")
    for _ in range(3):
        program()
    torch.cuda.synchronize()
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as trace:
        for _ in range(PROFILED_CALLS):
            program()
        torch.cuda.synchronize()
    events: dict[str, tuple[float, float]] = {}
    for event in trace.key_averages():
        # a range that the program marks lies over its kernels
        if event.device_type == torch.autograd.DeviceType.CUDA and not event.is_user_annotation:
            took = event.self_device_time_total
            events[event.key] = (event.count / PROFILED_CALLS, took / PROFILED_CALLS)
    row.put(profile={"inductor": classified(summed(_without_spaces(events)), {})})


def _without_spaces(events: dict[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
    """PyTorch's "Memcpy DtoD (...)" under the name that JAX's profiler uses."""
    names = {"Memcpy DtoD": "MemcpyD2D", "Memcpy HtoD": "MemcpyH2D", "Memcpy DtoH": "MemcpyD2H"}
    found: dict[str, tuple[float, float]] = {}
    for name, (count, us) in events.items():
        short = next((new for old, new in names.items() if name.startswith(old)), name)
        before = found.get(short, (0.0, 0.0))
        found[short] = (before[0] + count, before[1] + us)
    return found


if __name__ == "__main__":
    work_on(work)
