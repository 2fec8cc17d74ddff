"""The text of many kernels as hashes: what a change of the code generator changes in them.

Kernels are those of the cases in `tests/codegen` and of the regions in `graphs.zip`, which
`tests.replay.record` took from real programs and grown ones. A region is stored as the HLO it came
from, so that it is the same under every JAX; a case is lowered anew.
"""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from fusionstitch.codegen.generate import generate
from fusionstitch.codegen.kernel import Kernel
from fusionstitch.codegen.text.source import uncommented
from fusionstitch.costmodel.devices import device
from fusionstitch.hlo.errors import CodegenError
from fusionstitch.hlo.graph import Graph
from fusionstitch.hlo.importer import from_proto
from fusionstitch.hlo.simplify import simplify
from tests.codegen.cases import CASES
from tests.codegen.regions import whole

GRAPHS = Path(__file__).parent / "graphs.zip"


def texts_of_cases(names: Iterable[str] | None = None) -> Iterator[tuple[str, str]]:
    """The kernels of the cases, by name; of those in `names` alone, if it is given."""
    for name in CASES if names is None else names:
        yield f"cases/{name}", text(CASES[name].case().kernel())


def texts_of_graphs(names: Iterable[str] | None = None) -> Iterator[tuple[str, str]]:
    """The kernels of the stored regions for an H200, by name; of those in `names` alone, if it is
    given. The text of a refused one is its reason."""
    target = device("h200")
    for name, graph in stored(names):
        try:
            yield f"graphs/{name}", text(generate(graph, target))
        except CodegenError as error:
            yield f"graphs/{name}", f"refused: {error}"


def names_of_graphs() -> list[str]:
    """The names of the stored regions, in the order of the archive."""
    with zipfile.ZipFile(GRAPHS) as archive:
        return archive.namelist()


def stored(names: Iterable[str] | None = None) -> Iterator[tuple[str, Graph]]:
    """The stored regions by name, all of them or those in `names`."""
    with zipfile.ZipFile(GRAPHS) as archive:
        for name in archive.namelist() if names is None else names:
            entry = from_proto(archive.read(name)).entry
            yield name, whole(simplify(entry), "region")


def text(kernel: Kernel) -> str:
    """All that is handed to a compiler or a launch. Comments are left out: they name lines."""
    launch = {
        "grid": kernel.grid,
        "block": kernel.block,
        "cluster": kernel.cluster,
        "shared": kernel.shared_bytes,
        "cooperative": kernel.cooperative,
        "scratch": [str(shape) for shape in kernel.scratch],
        "in place": kernel.in_place,
        "template": kernel.template,
    }
    said = [f"// {key}: {value}" for key, value in launch.items()]
    return "\n".join([*said, uncommented(kernel.source)])


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
