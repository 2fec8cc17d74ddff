"""Suites that others published, as kinds of the corpus: their programs, read from their checkouts.

`python -m benchmarks.corpus --seed 0 --checkouts FOLDER` looks for the checkouts in FOLDER:

- `JAXBench` (github.com/aryatschand/JAXBench): 50 operators of language models and fused sequences,
  at its own sizes and, as its runner does, in bfloat16;
- `pyhpc-benchmarks` (github.com/dionhaefner/pyhpc-benchmarks): three parts of an ocean model, in
  float64 as its runner does, at three of its sizes.

Nothing is drawn: seed, sizes and layouts are theirs.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.corpus.drawing import Leaf
from benchmarks.corpus.table import Template

#: A function and its arguments, of arrays that are there.
Made = tuple[Callable[..., Any], tuple[Any, ...]]
#: The function of each of the ocean model's parts, by module; and sizes of three of its runs.
OCEAN: Mapping[str, str] = {
    "equation_of_state.eos_jax": "gsw_dHdT",
    "isoneutral_mixing.isoneutral_jax": "isoneutral_diffusion_pre",
    "turbulent_kinetic_energy.tke_jax": "integrate_tke",
}
SIZES = (2**14, 2**18, 2**22)


def templates(folder: Path | None) -> dict[str, Template] | None:
    """The programs of the suites whose checkouts are in `folder`, by name; None without a folder.

    Raises ValueError where none is.
    """
    if folder is None:
        return None
    suites = {
        "JAXBench": (folder / "JAXBench", language_operators),
        "pyhpc-benchmarks": (folder / "pyhpc-benchmarks", ocean_model),
    }
    there = {name: suite for name, suite in suites.items() if suite[0].is_dir()}
    if not there:
        raise ValueError(f"{folder} has no checkout of a suite: {' or '.join(suites)}.")
    return {
        program: Template(program, name, lambda _, made=made: given(*made()))
        for name, (checkout, programs) in there.items()
        for program, made in programs(checkout)
    }


def given(fun: Callable[..., Any], args: tuple[Any, ...]) -> Made:
    """The function with the arguments that are arrays as leaves; the others, such as sizes, stay
    what they are."""
    arrays = [n for n, arg in enumerate(args) if isinstance(arg, np.ndarray) or hasattr(arg, "at")]

    def called(*of_arrays: Any) -> Any:
        full = list(args)
        for number, array in zip(arrays, of_arrays, strict=True):
            full[number] = array
        return fun(*full)

    called.__name__ = fun.__name__
    return called, tuple(
        Leaf(args[n].shape, args[n].dtype, (0,), lambda _, shape, n=n: args[n]) for n in arrays
    )


def language_operators(checkout: Path) -> Iterator[tuple[str, Callable[[], Made]]]:
    """JAXBench: `benchmark/*/baseline.py`, each with `create_inputs` and `workload`."""
    for path in sorted((checkout / "benchmark").glob("*/baseline.py"), key=_number):

        def made(path: Path = path) -> Made:
            import jax.numpy as jnp

            module = _module(path)
            has_type = "dtype" in inspect.signature(module.create_inputs).parameters
            found = module.create_inputs(**({"dtype": jnp.bfloat16} if has_type else {}))
            return module.workload, found if isinstance(found, tuple) else (found,)

        yield path.parent.name, made


def _number(path: Path) -> int:
    """Folders begin with one, and then a letter."""
    return int("".join(letter for letter in path.parent.name.split("_")[0] if letter.isdigit()))


def _module(path: Path) -> ModuleType:
    name = f"public_{path.parent.name}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def ocean_model(checkout: Path) -> Iterator[tuple[str, Callable[[], Made]]]:
    """pyhpc-benchmarks: the parts' functions without their waiting, in float64."""
    for name, function in OCEAN.items():
        for size in SIZES:

            def made(name: str = name, function: str = function, size: int = size) -> Made:
                import jax

                jax.config.update("jax_enable_x64", True)
                package, _, module = name.partition(".")
                # its package is called benchmarks like ours
                sys.path.insert(0, str(checkout / "benchmarks"))
                inputs = importlib.import_module(package).generate_inputs(size)
                fun = getattr(importlib.import_module(f"{package}.{module}"), function)
                return fun, tuple(np.asarray(one) for one in inputs)

            yield f"{name.partition('.')[0]}_{size}", made
