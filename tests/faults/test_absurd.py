"""Modules that ask for too much, or for something missing: rejected after little work, in little
memory."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fusionstitch.commands import cli
from fusionstitch.compiler import core
from fusionstitch.costmodel.devices import device
from fusionstitch.errors import ImportModuleError
from fusionstitch.hlo import schema
from fusionstitch.hlo.importer import from_proto, parse
from fusionstitch.hlo.load import load
from fusionstitch.options import Options
from fusionstitch.runtime import guarded
from tests.faults import mutants
from tests.faults.sandbox import HANG, HangError, each_call, few_calls, memory_limit, no_hang

#: Calls of functions.
CALLS = 2_000_000
MEMORY = 1 << 30
F32, S32, TUPLE = (schema.PRIMITIVE_NUMBERS[name] for name in ("f32", "s32", "tuple"))


# ---- protos -------------------------------------------------------------------------------------


def module(*computations: list[dict[str, Any]], entry: int | None = None) -> Any:
    """A module from lists of instructions; `calls` are numbers of computations, from 1."""
    found = schema.HloModule(name="absurd")
    for number, instructions in enumerate(computations, 1):
        computation = found.computations.add(name=f"c{number}", id=number)
        for sandbox, facts in enumerate(instructions, 1):
            facts = dict(facts)
            dims, kind = facts.pop("dims", (4,)), facts.pop("kind", F32)
            operands = [number * 1000 + o for o in facts.pop("operands", ())]
            calls = facts.pop("calls", ())
            computation.instructions.add(
                name=f"i{number}.{sandbox}",
                id=number * 1000 + sandbox,
                shape=schema.Shape(element_type=kind, dimensions=dims),
                operand_ids=operands,
                called_computation_ids=calls,
                **facts,
            )
        computation.root_id = number * 1000 + len(instructions)
    found.entry_computation_id = len(computations) if entry is None else entry
    return found


X = {"opcode": "parameter"}


def call(*calls: int, opcode: str = "call", operands: tuple[int, ...] = (1,)) -> dict[str, Any]:
    return {"opcode": opcode, "operands": operands, "calls": calls}


def chain(length: int, calls: int, opcode: str = "call") -> Any:
    """Computations that each call the one before, several times."""
    first = [X, {"opcode": "negate", "operands": (1,)}]
    rest = [
        [X, *(call(number, opcode=opcode, operands=(sandbox,)) for sandbox in range(1, calls + 1))]
        for number in range(1, length)
    ]
    return module(first, *rest)


def loops(length: int, each: int) -> Any:
    """Bodies that hold several loops over the body before: exponential if they are walked."""
    test = [{**X, "dims": (4,)}, {"opcode": "no-such-op", "dims": (), "kind": 1}]
    bodies = [
        [
            X,
            *(
                call(number, 1, opcode="while", operands=(sandbox,))
                for sandbox in range(1, each + 1)
            ),
        ]
        for number in range(2, length)
    ]
    return module(test, [X, {"opcode": "negate", "operands": (1,)}], *bodies)


def nested_tuple(depth: int) -> Any:
    found = module([X])
    shape = found.computations[0].instructions[0].shape
    for _ in range(depth):
        shape.Clear()
        shape.element_type = TUPLE
        shape = shape.tuple_shapes.add()
    shape.element_type = F32
    return found


def op(opcode: str, operands: int, **facts: Any) -> Any:
    """One op on several parameters."""
    parameters = [{**X, "parameter_number": n} for n in range(operands)]
    return module([*parameters, {"opcode": opcode, "operands": range(1, operands + 1), **facts}])


def wrong(change: Callable[[Any], object]) -> Any:
    found = module([X, {"opcode": "negate", "operands": (1,)}])
    change(found)
    return found


def _second(module: Any) -> Any:
    return module.computations[0].instructions[1]


#: Proto -> what the error says.
PROTOS: dict[str, tuple[Any, str]] = {
    "calls that double 40 times": (chain(40, 2), "expand to more than"),
    "loops that double 40 times": (loops(40, 2), "expand to more than"),
    "loops that treble 20 times": (loops(20, 3), "expand to more than"),
    "loops nested 300 deep": (loops(300, 1), "nested more than"),
    "branches nested 300 deep": (chain(300, 1, "conditional"), "nested more than"),
    "a call of itself": (module([X, call(1)]), "calls itself"),
    "a loop over itself": (module([X, call(1, 1, opcode="while")]), "calls itself"),
    "a circle of 3000 calls": (
        module(*([X, call(n % 3000 + 1)] for n in range(1, 3001))), "calls itself",
    ),
    "a call that waits for itself": (
        module([X], [X, call(1, operands=(2,))]), "cannot be followed",
    ),
    "a missing callee": (module([X, call(99)]), "called but missing"),
    "a missing entry": (module([X], entry=7), "entry computation 7 is missing"),
    "a call, and a missing entry": (
        module([X], [X, call(1)], entry=7), "no entry computation 7",
    ),
    "a tuple nested 500 deep": (nested_tuple(500), "no HloModuleProto"),
    "65 dimensions": (module([{**X, "dims": (1,) * 65}]), "no array has the shape"),
    "a million dimensions": (module([{**X, "dims": (1,) * 10**6}]), "no array has the shape"),
    "a negative size": (module([{**X, "dims": (-1,)}]), "no array has the shape"),
    "2^120 elements": (module([{**X, "dims": (1 << 60, 1 << 60)}]), "no array has the shape"),
    "an unknown type": (module([{**X, "kind": 99}]), "unknown element type 99"),
    "an array and a tuple": (
        wrong(lambda m: _second(m).shape.tuple_shapes.add(element_type=F32)), "array and a tuple",
    ),
    "no root": (wrong(lambda m: setattr(m.computations[0], "root_id", 5)), "has no root"),
    "an id twice": (wrong(lambda m: setattr(_second(m), "id", 1001)), "is not unique"),
    "two computations of one id": (
        wrong(lambda m: m.computations.add().CopyFrom(m.computations[0])), "have one id",
    ),
    "an operand of its own": (
        wrong(lambda m: _second(m).operand_ids.__setitem__(0, 1002)), "missing or comes after",
    ),
    "a layout of other dimensions": (
        wrong(lambda m: _second(m).shape.layout.minor_to_major.extend([3, 9])), "no order of 1",
    ),
    "parameters that skip a number": (
        wrong(lambda m: setattr(m.computations[0].instructions[0], "parameter_number", 3)),
        "parameters are numbered",
    ),
    "a constant of 2^40 elements": (
        module([{"opcode": "constant", "dims": (1 << 40,)}]), "holds 0 elements",
    ),
    "a sum of one": (op("add", 1), "malformed"),
    "a sum of three": (op("add", 3), "2 operands"),
    "a sum of other sizes": (
        module([X, {**X, "parameter_number": 1, "dims": (5,)},
                {"opcode": "add", "operands": (1, 2)}]), "operands of one shape",
    ),
    "a selection by floats": (op("select", 3), "expected a pred"),
    "a comparison of no kind": (op("compare", 2, kind=1), "no direction"),
    "a reshape to more": (op("reshape", 1, dims=(5,)), "expected 4 elements"),
    "a broadcast into nowhere": (op("broadcast", 1, dims=(4, 4), dimensions=[7]), "malformed"),
    "a transpose of other dimensions": (op("transpose", 1, dimensions=[1]), "permutation"),
    "a concatenation along nothing": (op("concatenate", 2), "malformed"),
    "a slice without bounds": (op("slice", 1), "malformed"),
    "a reduction without a body": (op("reduce", 2, dims=(), dimensions=[0]), "malformed"),
    "a dot of vectors of no sizes": (op("dot", 2), "malformed"),
    "a loop without a body": (op("while", 1), "malformed"),
    "an element of no tuple": (op("get-tuple-element", 1), "malformed"),
    "a gather of nothing": (op("gather", 2), "malformed"),
    "a window without a body": (op("reduce-window", 2), "malformed"),
    "a scatter without a body": (op("scatter", 3), "malformed"),
    "an iota along nothing": (op("iota", 0), "malformed"),
}  # fmt: skip


@pytest.mark.parametrize("name", PROTOS)
def test_a_proto_is_refused(name: str) -> None:
    proto, message = PROTOS[name]
    data = proto.SerializeToString()
    with no_hang(), few_calls(CALLS), memory_limit(MEMORY):
        result = core.stitch(data, Options(), device("emulated"), None)
        [fallback] = result.fallbacks
        assert message in fallback.reason
        assert "Defect" not in fallback.reason
        assert result.module == data
        assert len(fallback.reason) < 2000


def test_too_much_work_is_found_on_any_thread() -> None:
    def called() -> None:
        """One of a hundred."""

    def work() -> None:
        for _ in range(100):
            called()

    numbers: list[int] = []
    caught = pytest.raises(HangError, match="after 50 calls")
    with caught, few_calls(50):
        work()
    with each_call(numbers.append):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert 100 < len(numbers) < 1000


def test_what_is_large_but_right_is_read() -> None:
    with no_hang(), few_calls(CALLS), memory_limit(MEMORY):
        # calls in a long chain are inlined, and an op that nobody knows is left where it is
        result = core.stitch(chain(500, 1).SerializeToString(), Options(), device("emulated"), None)
        assert result.fallbacks == ()
        data = op("no-such-op", 2, dims=(1 << 40,)).SerializeToString()
        [_, _, unknown] = from_proto(data).entry.ops
        assert unknown.opcode == "no-such-op"
        assert core.stitch(data, Options(), device("h200"), None).fallbacks == ()
        huge = op("add", 2)
        for instruction in huge.computations[0].instructions:
            instruction.shape.dimensions[:] = [1 << 45]
        result = core.stitch(huge.SerializeToString(), Options(), device("h200"), None)
        assert not any("Defect" in fallback.reason for fallback in result.fallbacks)


# ---- text ---------------------------------------------------------------------------------------

N = 200_000
HEAD = "HloModule m\n\nENTRY e {\n  "
TEXTS: dict[str, tuple[str, str]] = {
    "nothing but a name": ("HloModule m\n\nFileNames\n", "line 3: 'FileNames' stands"),
    "an end inside": (HEAD + "x = f32[4] parameter(0)\n", "ends inside computation"),
    "lines that never close": (HEAD + "x = f32[4] add(\n" * N, "more than 100 deep"),
    "one line that never closes": (HEAD + "x = f32[4] add(\n" + "a, b\n" * N, "not closed"),
    "brackets": (HEAD + "x = f32[4] add(" + "(" * N + "\n}\n", "more than 100 deep"),
    "a tuple of tuples": (HEAD + f"x = {'(' * N}f32[]{')' * N} tuple()\n}}\n", "100 deep"),
    "comments that never end": (HEAD + "/*" * N + "\n}\n", "HLO text"),
    "quotes that never end": (HEAD + '"' + '\\"' * N + "\n}\n", "HLO text"),
    "arrows": (HEAD + "(x) -> " * (N // 20) + "\n}\n", "HLO text"),
    "a number of digits": (HEAD + f"x = f32[{'9' * N}] parameter(0)\n}}\n", "HLO text"),
    "a number too large": (HEAD + "x = f32[99999999999999999999] parameter(0)\n}\n", "HLO text"),
    "a negative number": (HEAD + "ROOT x = f32[-4] parameter(0)\n}\n", "no array has the shape"),
    "a constant of brackets": (HEAD + f"x = c64[2] constant({'()' * N})\n}}\n", "HLO text"),
    "metadata of one word": (
        HEAD + f"ROOT x = f32[] parameter(0), metadata={{{'a' * N}}}\n  y = f32[] nothing(z)\n}}\n",
        "z is not an instruction",
    ),
    "a window of many sizes": (
        HEAD + f"x = f32[] reduce-window(), window={{size={'1x' * N}1}}\n}}\n", "200001 dimensions",
    ),
    "an unknown attribute": (HEAD + "x = f32[] parameter(0), colour=red\n}\n", "colour=red"),
    "an unknown shape": (HEAD + "x = g32[] parameter(0)\n}\n", "no shape this version knows"),
    "an empty computation": (HEAD + "\n}\n", "HLO text"),
    "two of one name": (
        HEAD + "x = f32[] parameter(0)\n  x = f32[] parameter(1)\n}\n", "an instruction x already",
    ),
    "StableHLO of nothing": ("module {\n}\n", "no function `main`"),
    "StableHLO of brackets": ("module {\n" + "(" * N, "nests brackets"),
    "StableHLO of regions": ('module {\n"a.b"() ({\n' + "({" * N, "nests brackets"),
    "StableHLO of an unknown op": (
        'module {\n func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {\n'
        '  %0 = "stablehlo.colour"(%a) : (tensor<4xf32>) -> tensor<4xf32>\n'
        "  return %0 : tensor<4xf32>\n }\n}\n", "JAX cannot read",
    ),
    "StableHLO of an unknown size": (
        "module {\n func.func @main(%a: tensor<?xf32>) -> tensor<?xf32> {\n"
        "  return %a : tensor<?xf32>\n }\n}\n", "static shapes",
    ),
    "StableHLO of 2^64 elements": (
        "module {\n func.func @main(%a: tensor<4294967296x4294967296xf32>) {\n  return\n }\n}\n",
        "",
    ),
    "no text": ("\n" * N, "cannot be read"),
}  # fmt: skip


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_is_refused(name: str) -> None:
    text, message = TEXTS[name]
    limits = few_calls(CALLS), memory_limit(4 * MEMORY)
    with no_hang(), limits[0], limits[1], pytest.raises(ImportModuleError) as caught:
        from_proto(load(text))
    assert message in str(caught.value)


# ---- files --------------------------------------------------------------------------------------


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, Path("/dev/zero"), tmp_path / "gone", Path("x" * 5000)):
        with no_hang(), pytest.raises(ImportModuleError, match=r"is no file|cannot be"):
            load(path)
    huge = tmp_path / "huge.pb"
    with huge.open("wb") as file:
        file.truncate(1 << 40)  # no bytes of it are on the disk
    with pytest.raises(ImportModuleError, match="more than 2147483647"):
        load(huge)


def refused(path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What the command says of a file that it refuses."""
    assert cli.main(["report", str(path)]) == 2
    said = capsys.readouterr().err.strip()
    assert said.startswith("fusionstitch: ")
    assert "Traceback" not in said
    return said


def test_the_command_refuses_a_malformed_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "half.pb"
    path.write_bytes(mutants.proto()[:2000])
    assert "no HloModuleProto" in refused(path, capsys)
    proto = parse(mutants.proto())
    proto.computations[-1].instructions[-1].opcode = "no-such-op"
    path.write_bytes(proto.SerializeToString())
    assert "Unknown opcode: no-such-op" in refused(path, capsys)


def test_the_command_refuses_what_this_machine_cannot_hold(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "large.hlo"
    size = 1 << 44
    path.write_text(
        f"HloModule m\n\nENTRY e {{\n  x = f32[{size}] parameter(0)\n"
        f"  ROOT y = f32[{size}] negate(x)\n}}\n"
    )
    with memory_limit(4 * MEMORY):
        assert "The arguments take" in refused(path, capsys)
    assert cli.main(["explain", str(path), "--device", "h200"]) == 0


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("kill -SEGV $$", "SIGSEGV"),
        ("echo LLVM ERROR: no result >&2; kill -ABRT $$", "SIGABRT, LLVM ERROR: no result"),
        ("exit 9", "exit status 9"),
        ("sleep 600", "was not read within"),
    ],
)
def test_a_reader_that_dies_or_hangs_is_outlived(
    script: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = tmp_path / "python"
    reader.write_text(f"#!/bin/sh\n{script}\n")
    reader.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(reader))
    monkeypatch.setattr(guarded, "_SECONDS", 0.5 if "sleep" in script else HANG)
    with no_hang(), pytest.raises(ImportModuleError, match=message):
        guarded.read(tmp_path / "module.pb")


def test_the_reader_s_memory_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "module.hlo"
    path.write_text("HloModule m\n")
    code = (
        "from fusionstitch.runtime import guarded\n"
        "import fusionstitch.hlo.load\n"
        "fusionstitch.hlo.load.load = lambda path: bytes(1 << 40)\n"
        f"guarded._main({str(path)!r}, '')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": ":".join(sys.path), "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "MemoryError" in done.stderr
