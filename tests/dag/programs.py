"""Programs as lists of (name, arrays), and how a scheduler runs them without computing anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import fusionstitch as fs

#: A name, and the arrays it uses: "x" is written, "x?" only read.
Step = tuple[str, str]

VEC = [("square 1", "x x1"), ("square 2", "y y1"), ("reduce", "x1? y1? res")]
BS = [(f"bs {i}", f"x{i}? y{i}") for i in range(10)]
ML = [
    ("rr_1", "x? z"),
    ("nb_1", "x? F r1"),
    ("rr_2", "z C r2"),
    ("nb_2", "r1 am"),
    ("nb_3", "r1 am l"),
    ("rr_3", "r2 ri"),
    ("nb_4", "r1 l"),
    ("softmax 1", "r1"),
    ("softmax 2", "r2"),
    ("argmax", "r1 r2 r"),
]
IMG = [
    ("blur small", "im? bs ks?"),
    ("blur large", "im? bl kl?"),
    ("blur unsharpen", "im? bu ku?"),
    ("sobel small", "bs ms"),
    ("sobel large", "bl ml"),
    ("max", "ml? M"),
    ("min", "ml? m"),
    ("extend", "ml m? M?"),
    ("unsharpen", "im bu iu"),
    ("combine 1", "iu? bl? ml? i2"),
    ("combine 2", "i2? bs? ms? i3"),
]
READ_ONLY = {"sobel small": "bs? ms", "sobel large": "bl? ml", "unsharpen": "im? bu? iu"}
IMG_ALL_CONST = [(name, READ_ONLY.get(name, uses)) for name, uses in IMG]
HITS = [
    ("spmv a", "p2? i2? v2? h1? a2"),
    ("spmv h", "p? i? v? a1? h2"),
    ("sum a", "a2? an"),
    ("sum h", "h2? hn"),
    ("divide a", "a2? a1 an?"),
    ("divide h", "h2? h1 hn?"),
]
DL = [
    ("conv x1", "x1 x k1?"),
    ("conv y1", "y1 y k3?"),
    ("pool x", "x11 x1?"),
    ("pool y", "y11 y1?"),
    ("conv x2", "x2 x11 k2?"),
    ("conv y2", "y2 y11 k4?"),
    ("concat", "z x2? y2?"),
    ("dot", "z? dw? res"),
]


def scheduler(**options: Any) -> Any:
    return fs.dag.Scheduler(**{"backend": "emulate", **options})


class Runner:
    """Gives steps to a scheduler, with arrays made when they are first named."""

    def __init__(self, **options: Any) -> None:
        self.d = scheduler(**options)
        self.arrays: dict[str, Any] = {}

    def run(self, steps: Sequence[Step]) -> Any:
        """The graph afterwards."""
        for name, uses in steps:
            words = uses.split()
            signature = ", ".join(
                "const pointer" if word.endswith("?") else "inout pointer" for word in words
            )
            call = self.d.library(lambda *_: None, signature, name=name)
            call(*(self.array(word.rstrip("?")) for word in words))
        return self.d.graph()

    def array(self, name: str) -> Any:
        if name not in self.arrays:
            self.arrays[name] = self.d.array(1, name=name)
        return self.arrays[name]
