"""An op's line is the user's: the innermost that no installed package, Python or JAX holds."""

import contextlib
import functools
import importlib
import sys
import sysconfig
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import fusionstitch as fs
from fusionstitch.hlo.frames import Frame, Frames, users
from fusionstitch.hlo.importer import from_proto
from fusionstitch.hlo.load import load
from fusionstitch.hlo.schema import HloModule
from fusionstitch.hlo.text import text_to_proto

X = jnp.ones((8, 64))
HERE = "/home/me/train.py"
PACKAGES = "/opt/env/lib/python3.12/site-packages"
STDLIB = sysconfig.get_path("stdlib")
SCRIPTS = sysconfig.get_path("scripts")
JAX = str(Path(jax.__file__).parent)
OURS = str(Path(fs.__file__).parent)

#: what is shown: a stack from inside out, as file and function, and the place of the user's frame
STACKS: dict[str, tuple[list[str], int]] = {
    "a library": ([f"{PACKAGES}/flax/n.py", f"{PACKAGES}/optax/u.py", HERE, "/home/me/a.py"], 2),
    "the user's own function": ([HERE, f"{PACKAGES}/flax/linen/module.py", "/home/me/a.py"], 0),
    "a package installed in place": (["/home/me/src/mine/ops.py", HERE], 0),
    "the standard library": ([f"{STDLIB}/functools.py", "/usr/lib/python3.11/this.py", HERE], 2),
    "Debian's packages": (["/usr/lib/python3/dist-packages/flax/linen.py", HERE], 1),
    "Windows": ([r"C:\Python\Lib\site-packages\flax\linen.py", r"C:\me\train.py"], 1),
    "JAX": ([f"{JAX}/_src/api.py", f"{PACKAGES}/jax/_src/api.py", HERE], 2),
    "this package": ([f"{PACKAGES}/flax/linen.py", f"{OURS}/api.py", HERE], 2),
    "a notebook's file": ([f"{PACKAGES}/flax/n.py", "/tmp/ipykernel_12/34.py",
                           f"{PACKAGES}/IPython/core.py", f"{PACKAGES}/ipykernel_launcher.py"], 1),
    "a notebook's text": ([f"{PACKAGES}/flax/n.py", "<ipython-input-3-4f2c>", HERE], 1),
    "a prompt": ([f"{PACKAGES}/flax/n.py", "<stdin>"], 1),
    "a doctest": (["<doctest mine.f[0]>", f"{STDLIB}/doctest.py"], 0),
    "a method that dataclasses wrote": ([f"{PACKAGES}/flax/n.py",
                                         "<string> __create_fn__.<locals>.__init__", HERE], 2),
    "a method that a library wrote": ([f"{PACKAGES}/flax/n.py",
                                       "<@beartype(flax.n.f) at 0x7f>", HERE], 2),
    "Python's frozen modules": ([f"{PACKAGES}/flax/n.py", HERE, "<frozen runpy>"], 1),
    "a program that is installed": ([f"{PACKAGES}/flax/n.py", f"{PACKAGES}/mine/model.py",
                                     f"{PACKAGES}/mine/main.py", f"{SCRIPTS}/mine <module>"], 1),
    "a program run as a module": ([f"{PACKAGES}/flax/n.py", f"{PACKAGES}/mine/model.py",
                                   f"{PACKAGES}/mine/main.py", "<frozen runpy>"], 1),
    "a script among Python's programs": ([f"{PACKAGES}/flax/n.py", f"{SCRIPTS}/mine.py f",
                                          f"{SCRIPTS}/mine.py <module>"], 1),
    "a stack cut short": ([f"{PACKAGES}/flax/n.py", f"{PACKAGES}/flax/module.py"], 0),
    "Python alone": ([f"{STDLIB}/functools.py"], 0),
}  # fmt: skip


@pytest.mark.parametrize("name", STACKS)
def test_the_users_frame(name):
    written, expected = STACKS[name]
    stack = []
    for number, one in enumerate(written, 1):
        file, _, function = one.partition(" ")
        if one.startswith("<") and "__create" not in one:
            file, function = one, ""
        stack.append(Frame(file, function, number))
    assert users(stack) == stack[expected]


@pytest.mark.parametrize("start", [f"{SCRIPTS}/fusionstitch", "<frozen runpy>"])
def test_no_frame(start):
    assert users([]) is None
    ours = [Frame(f"{OURS}/trial.py", "lowered", 3), Frame(f"{OURS}/cli.py", "main", 2)]
    assert users([*ours, Frame(start, "<module>", 1)]) is None
    assert Frames(HloModule().stack_frame_index).location(3) == ("", 0)


def test_frames_that_call_each_other_end():
    index = HloModule().stack_frame_index
    index.file_names.append(f"{PACKAGES}/flax/n.py")
    index.file_locations.add(file_name_id=1, function_name_id=9, line=7)
    index.stack_frames.add(file_location_id=1, parent_frame_id=2)
    index.stack_frames.add(file_location_id=1, parent_frame_id=1)
    index.stack_frames.add(file_location_id=4)
    frames = Frames(index)
    assert frames.location(1) == (f"{PACKAGES}/flax/n.py", 7)
    assert frames.location(3) == ("", 0)


# ---- programs -----------------------------------------------------------------------------------


def lines(fun, *args):
    """The locations of a program's ops: of each file the last part of its name."""
    lowered = jax.jit(fun).lower(*args)  # lowered
    return places(lowered.compiler_ir("hlo").as_serialized_hlo_module_proto())


def places(data):
    ops = [op for graph in from_proto(data).graphs for op in graph]
    return {(Path(op.source.file).name, op.source.line) for op in ops if op.source.file}


def here(text):
    """Where a line of this file stands, by a comment on it that no other line has."""
    rows = Path(__file__).read_text().splitlines()
    [found] = [number for number, row in enumerate(rows, 1) if row.endswith(f"# {text}")]
    return ("test_frames.py", found)


def test_a_layer_of_flax():
    linen = pytest.importorskip("flax.linen")

    class Net(linen.Module):
        @linen.compact
        def __call__(self, x):
            x = linen.LayerNorm()(x)  # norm
            return linen.softmax(x)  # softmax

    net = Net()
    params = net.init(jax.random.key(0), X)
    assert lines(lambda p, x: net.apply(p, x), params, X) == {here("norm"), here("softmax")}


def test_an_optimizer_of_optax():
    optax = pytest.importorskip("optax")
    adam = optax.adamw(1e-3)
    state = adam.init(X)

    def step(grads, state, params):
        updates, state = adam.update(grads, state, params)  # update
        return optax.apply_updates(params, updates), state  # apply

    expected = {here("update"), here("apply")}
    assert lines(step, X, state, X) == expected
    lowered = jax.jit(step).lower(X, state, X)
    assert places(text_to_proto(lowered.compile().as_text())) == expected


def test_a_function_of_a_library_itself():
    linen = pytest.importorskip("flax.linen")
    norm = linen.LayerNorm()
    params = norm.init(jax.random.key(0), X)
    assert lines(norm.apply, params, X) == {here("lowered")}


def test_a_decorated_function():
    def scaled(fun):
        @functools.wraps(fun)
        def wrapper(x):
            with contextlib.ExitStack():
                return fun(x) * 3  # wrapper

        return wrapper

    @scaled
    @jax.named_call
    def f(x):
        return jnp.tanh(x)  # wrapped

    assert lines(f, X) == {here("wrapper"), here("wrapped")}


def test_source_that_no_file_holds():
    names = {}
    source = "import jax.numpy as jnp\n\ndef f(x):\n    return jnp.tanh(x)\n"
    exec(compile(source, "<ipython-input-7-0a1b>", "exec"), names)
    assert lines(names["f"], X) == {("<ipython-input-7-0a1b>", 4)}


@pytest.mark.parametrize(("folder", "shown"), [("src", ("ops.py", 4)), ("site-packages", "caller")])
def test_a_library_of_the_user(tmp_path, monkeypatch, folder, shown):
    package = tmp_path / folder / "library_of_mine"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "ops.py").write_text(
        "import jax.numpy as jnp\n\ndef f(x):\n    return jnp.tanh(x)\n"
    )
    monkeypatch.syspath_prepend(str(package.parent))
    f = importlib.import_module("library_of_mine.ops").f
    try:
        expected = here(shown) if isinstance(shown, str) else shown
        assert lines(lambda x: f(x), X) == {expected}  # caller
    finally:
        for name in [name for name in sys.modules if name.startswith("library_of_mine")]:
            del sys.modules[name]


def test_stablehlo_keeps_the_places():
    def f(x):
        return jnp.tanh(x)  # stable

    lowered = jax.jit(f).lower(X)
    assert here("stable") in places(load(lowered.as_text(debug_info=True)))
    exported = jax.export.export(jax.jit(f))(X)
    assert here("stable") in places(load(exported.mlir_module_serialized))


def test_reports_and_kernels_name_the_users_line():
    optax = pytest.importorskip("optax")

    def f(x, y):
        return optax.losses.cosine_similarity(x, y).sum()  # cosine

    lowered = fs.jit(f, options=fs.Options(backend="emulate")).lower(X, X)
    compiled = lowered.compile()
    file, line = here("cosine")
    assert f"{file}:{line}" in compiled.explain()
    assert f"({file}:{line})" in compiled.kernels[0].source
    assert "optax" not in compiled.explain()
