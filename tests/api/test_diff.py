"""Comparing two plans: kernels lost, gained and changed, ops that moved, files with no plan."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from fusionstitch.commands import cli
from fusionstitch.errors import TargetError
from fusionstitch.reports.differences import compare, text
from fusionstitch.reports.sides import Part, Side, of_file

PROGRAM = """
import jax, jax.numpy as jnp

def table(x):
    s = jax.nn.softmax(x)
    return s * (s * x).sum(0)

def target():
    return table, (jax.ShapeDtypeStruct((64, 96), jnp.float32),)
"""


def part(kernel: str, ops: str, us: float = 1.0, template: str = "cta_num=1;") -> Part:
    return Part(kernel, frozenset(ops), "block", template, us, 2.0)


def side(
    name: str, parts: Iterable[Part], us: float, reasons: dict[str, str] | None = None
) -> Side:
    return Side(name, "h200", tuple(parts), reasons or {}, us, 9.0)


BEFORE = side("old", [part("fs_a", "abc"), part("fs_b", "defg", 2.0), part("fs_c", "xy")], 4.0)
AFTER = side(
    *(
        "new",
        [part("fs_a", "abc"), part("fs_d", "efgh", 1.5, "cta_num=8;"), part("fs_e", "dz")],
        3.0,
    ),
    {"x": "XLA sorts such long rows."},
)


def test_what_differs() -> None:
    found = compare(BEFORE, AFTER)
    assert [one.kernel for one in found.same] == ["fs_a"]
    [change] = found.changed
    assert (change.before.kernel, change.after.kernel) == ("fs_b", "fs_d")
    assert (change.gained, change.lost) == (["h"], ["d"])
    assert [one.kernel for one in found.lost] == ["fs_c"]
    assert [one.kernel for one in found.gained] == ["fs_e"]
    assert (found.entered, found.left, found.moved) == (("h", "z"), ("x", "y"), ("d",))
    said = text(found)
    for line in (
        "modelled 4.00 -> 3.00 us (-25.0%)",
        "changed fs_b became fs_d: block scope, modelled 2.00 -> 1.50 us (-25.0%)",
        "    +cta_num=8;",
        "1 op out of all kernels: x; in new for h200: XLA sorts such long rows.",
        "1 op to another kernel: d",
    ):
        assert line in said.splitlines()
    assert json.loads(json.dumps(found.to_dict()))["ops"]["moved"] == ["d"]


def test_ops_whose_numbers_changed_are_the_same(tmp_path: Path) -> None:
    """By opcode and scope: the second program has one more tanh before all others."""

    def side(name: str, numbers: dict[str, str], template: str) -> Side:
        ops = [
            {"name": n, "opcode": k.split()[0], "scope": k.split()[1]} for n, k in numbers.items()
        ]
        kernel = {"name": "fs_a", "ops": list(numbers)[-2:], "scope": "", "template": template}
        data = {
            "workload": name,
            "device": "h200",
            "ops": [{**op, "reason": None} for op in ops],
            "kernels": [{**kernel, "modelled_us": 1.0, "xla_us": 2.0}],
        }
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps({**data, "modelled_us": 1.0, "modelled_xla_us": 2.0}))
        return of_file(path)

    old = side("old", {"tanh.1": "tanh f/b/tanh", "exp.2": "exp f/b/exp"}, "tanh.1[CTA];")
    numbers = {"tanh.1": "tanh f/a/tanh", "tanh.2": "tanh f/b/tanh", "exp.3": "exp f/b/exp"}
    assert compare(old, side("new", numbers, "tanh.2[CTA];")).equal
    other = side("other", numbers, "tanh.2[WARP];")
    [change] = compare(old, other).changed
    assert (change.gained, change.lost) == ([], [])
    assert "    -tanh.2[CTA];" in text(compare(old, other)).splitlines()


def test_equal_plans_and_plans_with_nothing_in_common() -> None:
    assert compare(BEFORE, BEFORE).equal
    assert "the plans are equal: 3 kernels" in text(compare(BEFORE, BEFORE))
    nothing = side("none", [], 9.0)
    assert len(compare(BEFORE, nothing).lost) == 3
    assert len(compare(nothing, BEFORE).gained) == 3


def test_a_kernel_that_two_patterns_share_is_counted_twice() -> None:
    twice = side("twice", [part("fs_a", "abc"), part("fs_a", "pqr")], 2.0)
    found = compare(twice, side("once", [part("fs_a", "abc")], 1.0))
    assert (len(found.same), len(found.lost)) == (1, 1)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = tmp_path / "mine.py"
    program.write_text(PROGRAM)
    target, first, second = f"{program}:target", tmp_path / "first.json", tmp_path / "second.json"
    assert cli.main(["explain", target, "--device", "h200", "--json", str(first)]) == 0
    assert cli.main(["report", target, "--device", "h200", "--json", str(second)]) == 0
    capsys.readouterr()
    assert cli.main(["diff", str(first), target, "--device", "h200"]) == 0
    assert "the plans are equal: 1 kernel" in capsys.readouterr().out
    assert cli.main(["diff", str(first), str(second), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["before"] == data["after"]
    assert data["same"] == [one["kernel"] for one in json.loads(second.read_text())["patterns"]]


@pytest.mark.parametrize(
    "content", ["", "[1]", "{}", '{"workload": 1, "patterns": 3}', "[" * 100_000, '{"ops": []}']
)
def test_files_that_hold_no_plan(content: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(content)
    with pytest.raises(TargetError, match=r"holds no plan .* Write one with"):
        of_file(path)


def test_a_missing_file_and_what_another_wrote_into_one(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="cannot be read: No such file"):
        of_file(tmp_path / "none.json")
    path = tmp_path / "plan.json"
    kernel = {"name": "fs\x1b[2J", "ops": ["a\nb"], "scope": "", "template": "x\x07\ny"}
    kernel |= {"modelled_us": 1, "xla_us": 2}
    data = {"workload": "w\n", "device": "d", "ops": [], "kernels": [kernel]}
    path.write_text(json.dumps(data | {"modelled_us": 1, "modelled_xla_us": 2}))
    said = text(compare(of_file(path), side("none", [], 9.0)))
    assert said.replace("\n", "").isprintable()
