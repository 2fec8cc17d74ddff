"""Questions about a program: what matches, and what is answered for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fusionstitch as fs
from fusionstitch.api import call_of
from fusionstitch.codegen.ir.memory import Memory
from fusionstitch.codegen.settings import CodegenOptions, Settings
from fusionstitch.codegen.while_loops.generate import plan_loops
from fusionstitch.codegen.while_loops.summary import VARIABLE, WHERE
from fusionstitch.commands import cli
from fusionstitch.compiler.stitched import Fallback, Stitched
from fusionstitch.costmodel.devices import device
from fusionstitch.errors import TargetError
from fusionstitch.reports import trial
from fusionstitch.reports.answered import answered, to_dict
from fusionstitch.reports.answers import FREE, SIMPLIFIED, STRUCTURE, Answers
from fusionstitch.reports.explain import explain
from fusionstitch.reports.left import left
from fusionstitch.reports.looped import loop_lines, loops_of
from fusionstitch.reports.questions import Question
from tests.kept import kept_sort
from tests.loops.forms import wholes
from tests.loops.growth import Grown

OPTIONS = fs.Options(backend="emulate", device="h200")
X = jax.ShapeDtypeStruct((64, 96), jnp.float32)


def softened(x: jax.Array) -> jax.Array:
    with jax.named_scope("soften"):
        e = jnp.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)


def program(x: jax.Array) -> Any:
    """A kernel, a loop that is one, a sort and a function of complex numbers that are none."""
    s = softened(x)
    table = s * (s * x).sum(0)
    steps = jax.lax.fori_loop(0, 29, lambda i, y: y + 0.1 * jnp.sin(y - i), x)
    turned = jnp.tanh(jax.lax.complex(x, x))
    return table, steps, kept_sort(table), turned, (x + 0) * jnp.ones(())


@pytest.fixture(scope="module")
def stitched() -> Stitched:
    return trial.plan(call_of(program, (X,), {}, OPTIONS))


@pytest.fixture(scope="module")
def answers(stitched: Stitched) -> Answers:
    return Answers(stitched)


def test_what_is_left_to_xla_has_its_reason_and_its_time(
    stitched: Stitched, answers: Answers
) -> None:
    plan = stitched.plans[-1]
    found = left(answers)[id(plan)]
    named = {op.name: one for one in found for op in one.ops}
    [sort] = [name for name in named if name.startswith("sort")]
    assert "sort" in named[sort].reason.lower()
    assert [one.us for one in found] == sorted((one.us for one in found), reverse=True)
    held = {op.name for chosen in plan.chosen for op in chosen.pattern.ops}
    assert not held & set(named)
    text = explain(stitched)
    assert f"{named[sort].us:.1f} us: {named[sort].reason}" in text
    assert f"left to XLA: {len(named)} ops" in text


def test_rejected_candidates_are_listed_if_asked_for(stitched: Stitched) -> None:
    reasons = {one.reason for one in stitched.rejected if one.rule != "op"}
    asked, plain = explain(stitched, rejected=True), explain(stitched)
    assert reasons
    assert all(f": {reason}\n    " in asked for reason in reasons)
    assert "candidates rejected" in plain
    assert "candidates rejected" not in asked


def test_shared_memory_is_what_the_kernel_takes() -> None:
    def centred(x: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, 99, lambda i, y: y - jnp.tanh(y).mean(), x)

    found = trial.plan(call_of(centred, (X,), {}, OPTIONS))
    kernel = found.stitches[0].kernel
    assert kernel.shared_bytes > 0
    assert f"{kernel.block} threads a block, {kernel.shared_bytes} bytes shared" in explain(found)


def line_of(text: str) -> int:
    lines = Path(__file__).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


@pytest.mark.parametrize(
    ("question", "some", "none"),
    [
        (Question(op="soften"), "exponential", "sort"),
        (Question(op="jit(program)/soften/exp"), "exponential", "divide"),
        (Question(op="softened"), "exponential", "sine"),  # the Python function
        (Question(op="exponential"), "exponential", "divide"),  # the opcode
        (Question(op="exp*"), "exponential", "divide"),
        (Question(line=f"test_explain.py:{line_of('return e / e.sum')}"), "divide", "exponential"),
        (Question(line=f"api/test_explain.py:{line_of('s = softened(x)')}"), "divide", "sine"),
        (Question(op="soften", line=f"{__file__}:{line_of('return e / e.sum')}"), "divide", "sine"),
        (Question(line=f"test_explain.py:{line_of('steps = jax')}"), "sine", "divide"),
        (Question(what="sine"), "sine", "sort"),
        (Question(what=f"test_explain.py:{line_of('steps = jax')}"), "sine", "divide"),
    ],
)
def test_what_matches(answers: Answers, question: Question, some: str, none: str) -> None:
    opcodes = {answer.opcode for answer in question.chosen(answers)}
    assert some in opcodes
    assert none not in opcodes


def activated(x: jax.Array) -> Any:
    held = jnp.sin(jax.nn.softmax(x * 3.0)) + jnp.var(x, 1, keepdims=True)
    return jnp.cumsum(
        held,
        axis=1,
    ), jax.nn.standardize(held - 1.0)


@pytest.mark.parametrize(
    ("op", "some", "none"),
    [
        ("softmax", "exponential", "sine"),
        ("nn.softmax", "exponential", "sine"),
        ("jax.nn.soft*", "exponential", "rsqrt"),
        ("sin", "sine", "exponential"),
        ("standardize", "rsqrt", "sine"),
        ("var", "subtract", "exponential"),
        ("cumsum", "reduce-window", "rsqrt"),
    ],
)
def test_functions_of_jax_match_by_the_names_that_the_user_calls(
    op: str, some: str, none: str
) -> None:
    plan = trial.plan(call_of(activated, (X,), {}, OPTIONS))
    opcodes = {answer.opcode for answer in Question(op=op).chosen(Answers(plan))}
    assert some in opcodes
    assert none not in opcodes


def test_kernels_match_by_their_names(stitched: Stitched, answers: Answers) -> None:
    name = stitched.kernels[0].name
    found = Question(kernel=name).chosen(answers)
    assert found == Question(what=name).chosen(answers)
    assert {name} == {kernel for answer in found for kernel in answer.kernels}
    assert len(Question(kernel="fs_*").chosen(answers)) > len(found)


def test_nothing_matches(answers: Answers) -> None:
    with pytest.raises(TargetError, match=r"matches op sofden\. Close to it: soften"):
        Question(op="sofden").chosen(answers)
    with pytest.raises(TargetError, match=r"'norms\.py' names no line: write it as FILE:LINE"):
        Question(line="norms.py")


def test_every_op_is_in_a_kernel_or_has_a_reason(answers: Answers) -> None:
    found = {answer.opcode: answer for answer in answers}
    assert all(bool(answer.kernels) != bool(answer.reason) for answer in answers)
    assert found["exponential"].kernels != found["sine"].kernels != ()
    assert found["while"].kernels == found["sine"].kernels
    assert found["sort"].reason.startswith("Kernels sort by one key")
    assert found["tanh"].reason == "Kernels have no expression for it."
    assert found["tanh"].facts == {"dtype": "c64"}
    xla = found["tanh"].xla
    assert xla is not None
    assert xla.us > 0
    reasons = {answer.reason for answer in answers}
    assert {STRUCTURE, SIMPLIFIED} <= reasons


def test_costs_and_candidates_of_what_was_turned_down() -> None:
    plan = trial.plan(call_of(lambda x: jnp.exp(x) * jnp.arange(96.0), (X,), {}, OPTIONS))
    found = {answer.opcode: answer for answer in Answers(plan)}
    one = found["exponential"]
    assert one.reason == one.candidates[0].reason
    assert one.xla is not None
    assert one.xla.ops > 1
    assert found["iota"].reason == FREE
    text = answered(plan, Question(op="exponential"))
    assert f"in no kernel: {one.reason}" in text
    assert f"is modelled to take {one.xla.us:.2f} us" in text
    assert "candidate" in text


def test_what_was_planned_and_left_to_xla_says_why(stitched: Stitched) -> None:
    whole = Stitched(
        "f", b"", stitched.device, given=stitched.given, fallbacks=(Fallback((), "No GPU."),)
    )
    assert {answer.reason for answer in Answers(whole)} == {"No GPU."}
    chosen = stitched.stitches[0].chosen
    ops = tuple(op.name for op in chosen.pattern.ops)
    part = Stitched(
        *("f", b"", stitched.device, stitched.plans, stitched.stitches[1:]),
        fallbacks=(Fallback(ops, "It does not compile."),),
    )
    left = {answer.name for answer in Answers(part) if answer.reason == "It does not compile."}
    kept = {answer.name for answer in Answers(part) if answer.kernels}
    assert left >= set(ops) - kept != set()


def test_as_text_and_as_json(stitched: Stitched) -> None:
    text = answered(stitched, Question(op="sine"))
    [loop] = [one.kernel for one in stitched.stitches if loops_of(one.kernel)]
    assert f"{loop.name} (elemwise, loop scope" in text
    assert "loops in the form rows, dealt along an axis of" in text
    data = to_dict(stitched, Question(op="sine"))
    assert json.loads(json.dumps(data, allow_nan=False)) == json.loads(json.dumps(data))
    [op] = data["ops"]
    assert op["kernels"] == [loop.name]
    assert op["functions"][0].endswith("<lambda>")
    [kernel] = data["kernels"]
    roles = [element["role"] for element in kernel["loops"]["loops"][0]["elements"]]
    assert roles == ["counter", "state", "state"]


def test_a_requested_kernel_is_described_alone_and_in_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where others compute some of its ops, too; of long templates the others show a part."""

    def shared(x: jax.Array) -> Any:
        for fun in (jnp.sin, jnp.tanh):  # each with the constants of the other
            s = jax.nn.standardize(jax.lax.optimization_barrier(x))
            x = s * (s * fun(x)).sum(0)
        return x

    stitched = trial.plan(call_of(shared, (X,), {}, OPTIONS))
    held = [set(answer.kernels) for answer in Answers(stitched)]
    one, *others = next(sorted(names) for names in held if len(names) > 1)
    template = next(k.template for k in stitched.kernels if k.name == one).splitlines()
    monkeypatch.setattr("fusionstitch.reports.explain._SHOWN_TEMPLATE", len(template) - 1)
    text = answered(stitched, Question(kernel=one))
    assert f": {one} (" in text
    assert not any(f": {name} (" in text for name in others)
    assert all(f"    {line}\n" in f"{text}\n" for line in template)
    assert [kernel["name"] for kernel in to_dict(stitched, Question(kernel=one))["kernels"]] == [
        one
    ]
    every = answered(stitched, Question(op="*"))
    assert all(f": {name} (" in every for name in (one, *others))
    assert "and 1 more lines of the template: ask for the kernel by its name" in every


def test_of_compiled_programs() -> None:
    def plain(x: jax.Array) -> jax.Array:
        return softened(x) + 1

    compiled = fs.jit(plain, options=fs.Options(backend="auto")).lower(jnp.ones((4, 8))).compile()
    if compiled.stitched is None:
        assert compiled.explain("soften") == compiled.explain()


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "import jax, jax.numpy as jnp\n"
        "def loop():\n"
        "    return lambda x: jax.lax.fori_loop(0, 29, lambda i, y: y + jnp.sin(y), x), "
        "(jnp.ones(64),)\n"
    )
    command = ["explain", f"{file}:loop", "--device", "h200"]
    assert cli.main([*command, "--line", "mine.py:3", "--op", "sin"]) == 0
    assert "f32[64]: state, registers" in capsys.readouterr().out
    path = tmp_path / "out.json"
    assert cli.main([*command, "--json", str(path)]) == 0
    data = json.loads(path.read_text())
    assert (data["workload"], data["device"]) == ("mine:loop", "h200")
    assert all(op["kernels"] or op["reason"] for op in data["ops"])
    assert cli.main([*command, "--kernel", "no"]) == 2
    assert "No op of the program matches kernel no" in capsys.readouterr().err


def test_what_loops_carry_and_where_in_each_form() -> None:
    """A counter, an invariant, an input and outputs by iteration, a sum and a state."""

    def fun(xs: jax.Array, scale: jax.Array) -> Any:
        def step(carry: Any, x: jax.Array) -> Any:
            state, total = carry
            state = jnp.tanh(state * scale + x)
            return (state, total + state), state * 2

        return jax.lax.scan(step, (jnp.zeros(64), jnp.zeros(64)), xs)

    args = (np.ones((5, 64), np.float32), np.ones(64, np.float32))
    [whole] = wholes(Grown(fun, args, "carried"))
    settings = Settings(device("h200"), CodegenOptions())
    places = {}
    for form in ("rows", "dealt", "cluster", "block", "grid"):
        looped = plan_loops(whole.region, settings, template=f"loop {form}")
        found = loops_of(looped.kernel())
        assert found is not None
        assert found.form == form
        assert found.iteration_us > 0
        [loop] = found.loops
        assert loop.iterations == 5
        roles = sorted(element.role for element in loop.elements)
        assert roles == [
            *("accumulator", "counter", "invariant", "stacked input", "stacked output", "state"),
        ]
        places[form] = {element.role: element.place for element in loop.elements}
        assert places[form]["counter"] == VARIABLE
        assert places[form]["invariant"] == places[form]["stacked input"] == WHERE[Memory.INPUT]
        assert places[form]["stacked output"].startswith("output ")
        assert f"in the form {form}" in "\n".join(loop_lines(found))
    assert (places["rows"]["state"], places["dealt"]["state"]) == (
        WHERE[Memory.REGISTER],
        WHERE[Memory.SHARED],
    )
    assert places["cluster"]["state"] == places["block"]["state"] == WHERE[Memory.SHARED]
    assert places["grid"]["accumulator"] in (
        WHERE[Memory.SCRATCH],
        "output 0",
        "output 1",
        "output 2",
    )


def test_kernels_of_loops_bodies_say_how_often_they_run() -> None:
    def fun(x: jax.Array) -> jax.Array:
        def step(_: Any, y: jax.Array) -> jax.Array:
            s = softened(kept_sort(y))
            return s * (s * y).sum(0)

        return jax.lax.fori_loop(0, 7, step, x)

    plan = trial.plan(call_of(fun, (X,), {}, OPTIONS.replace(scorer="paper")))
    assert "    runs 7 times a call: times are those of one" in answered(plan, Question(op="exp"))
    assert {one["runs"] for one in to_dict(plan, Question(op="exp"))["kernels"]} == {7}
