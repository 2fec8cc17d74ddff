"""Programs over zeros and ones, solved by HiGHS in this process, the same every time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, chain

import highspy
import numpy as np

Option = bool | int | float | str

#: Steps of HiGHS that take longer than they save: without them 50 programs of 70 to 1200 columns,
#: of three training steps, took a quarter of the time.
_SKIPPED: dict[str, Option] = {"presolve": "off", "mip_heuristic_run_feasibility_jump": False}


def maximised(
    weights: Sequence[float],
    rows: Sequence[Sequence[int]],
    most: Sequence[int],
    gap: float,
    max_nodes: int,
) -> tuple[list[float], bool]:
    """Values of the columns for the largest total of `weights`, and whether the solver proved it
    within a relative `gap`; at most `most[r]` of the columns `rows[r]` may be one. The values are
    as the solver left them."""
    count = len(weights)
    program = highspy.HighsLp()
    program.num_col_, program.num_row_ = count, len(rows)
    program.sense_ = highspy.ObjSense.kMaximize
    program.col_cost_ = np.array(weights, np.float64)
    program.col_lower_, program.col_upper_ = np.zeros(count), np.ones(count)
    program.row_lower_ = np.full(len(rows), -highspy.kHighsInf)
    program.row_upper_ = np.array(most, np.float64)
    program.integrality_ = [highspy.HighsVarType.kInteger] * count
    columns = np.array(list(chain.from_iterable(rows)), np.int32)
    program.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    program.a_matrix_.start_ = np.array([0, *accumulate(map(len, rows))], np.int32)
    program.a_matrix_.index_, program.a_matrix_.value_ = columns, np.ones(len(columns))
    solver = highspy.Highs()
    options: dict[str, Option] = {
        "output_flag": False,
        "threads": 1,
        "random_seed": 0,
        "mip_rel_gap": gap,
        "mip_abs_gap": 0.0,
        "mip_max_nodes": max_nodes,
        **_SKIPPED,
    }
    for name, value in options.items():
        solver.setOptionValue(name, value)
    solver.passModel(program)
    solver.run()
    proven = solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
    return list(solver.getSolution().col_value), proven
