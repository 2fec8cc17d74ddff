"""What `make test` leaves to `make test-slow` of files whose cases take long together.

Of each test with several cases one in so many stays, the others are `slow`. Which one moves on from
one so many to the next, so that a test of every case in two ways stays in both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

#: By file, of how many cases one stays.
SHARES: Mapping[str, int] = {
    "tests/api/test_leave.py": 2,
    "tests/behaviour/test_around.py": 2,
    "tests/behaviour/test_classes.py": 2,
    "tests/behaviour/test_effects.py": 2,
    "tests/behaviour/test_errors.py": 4,
    "tests/behaviour/test_transformations.py": 6,
    "tests/behaviour/test_wrappings.py": 4,
    "tests/benchmarks/test_corpus.py": 6,
    "tests/benchmarks/test_loops.py": 8,
    "tests/benchmarks/test_unseen.py": 3,
    "tests/benchmarks/test_workloads.py": 2,
    "tests/cli/test_emit.py": 4,
    "tests/cli/test_mistakes.py": 3,
    "tests/cli/test_one_line.py": 3,
    "tests/clients/test_diffrax.py": 4,
    "tests/clients/test_optax.py": 2,
    "tests/codegen/test_architectures.py": 2,
    "tests/codegen/test_cluster_loops.py": 4,
    "tests/codegen/test_deep_programs.py": 4,
    "tests/codegen/test_expressions.py": 3,
    "tests/codegen/test_factors.py": 2,
    "tests/codegen/test_followed.py": 4,
    "tests/codegen/test_kernels.py": 6,
    "tests/codegen/test_loop_sizes.py": 2,
    "tests/codegen/test_loops_in_branches.py": 4,
    "tests/codegen/test_loops_in_place.py": 4,
    "tests/codegen/test_once.py": 4,
    "tests/codegen/test_pads.py": 2,
    "tests/codegen/test_phased_loops.py": 4,
    "tests/codegen/test_roundings.py": 4,
    "tests/codegen/test_scopes.py": 3,
    "tests/codegen/test_shared_starts.py": 3,
    "tests/codegen/test_snapshots.py": 2,
    "tests/codegen/test_streams.py": 4,
    "tests/codegen/test_tallies.py": 4,
    "tests/codegen/test_tuning.py": 4,
    "tests/codegen/test_whole_loops.py": 4,
    "tests/codegen/test_widened.py": 2,
    "tests/costmodel/test_every_number.py": 4,
    "tests/coverage/test_arithmetic.py": 8,
    "tests/coverage/test_data.py": 8,
    "tests/examples/test_examples.py": 6,
    "tests/faults/test_faults.py": 4,
    "tests/faults/test_inside_xla.py": 3,
    "tests/guard/test_sides.py": 4,
    "tests/hlo/test_evaluate.py": 2,
    "tests/integration/test_kernel_counts.py": 4,
    "tests/integration/test_programs.py": 6,
    "tests/integration/test_rare_ops.py": 2,
    "tests/integration/test_sizes.py": 4,
    "tests/loops/test_grown_loops.py": 4,
    "tests/loops/test_reduced.py": 2,
    "tests/loops/test_row_queries.py": 6,
    "tests/loops/test_samplers.py": 4,
    "tests/loops/test_tables.py": 4,
    "tests/loops/test_values_of_rows.py": 4,
    "tests/loops/test_written_back.py": 4,
    "tests/numbers/test_narrow_floats.py": 2,
    "tests/numbers/test_reducers.py": 4,
    "tests/numbers/test_signed_zeros.py": 3,
    "tests/numbers/test_windows.py": 3,
    "tests/patterns/test_loop_residuals.py": 2,
    "tests/patterns/test_loop_tables.py": 2,
    "tests/patterns/test_recompute.py": 2,
    "tests/runtime/test_emulate_faults.py": 2,
    "tests/runtime/test_images.py": 2,
    "tests/runtime/test_unloading.py": 2,
    "tests/test_programs.py": 4,
    "tests/trial/test_described.py": 2,
}


def asked(request: pytest.FixtureRequest, names: Iterable[str], *others: str) -> list[str]:
    """Those of the names that the tests of a module have as `name` in this run, and `others`; all
    where no test has one. A module that builds its cases together builds no more than these."""
    specs = (getattr(i, "callspec", None) for i in request.session.items if i.path == request.path)
    wanted = {spec.params["name"] for spec in specs if spec and "name" in spec.params}
    return [name for name in names if name in wanted or name in others or not wanted]


def share_out(items: Iterable[pytest.Item]) -> None:
    """Marks the cases that are left to the slow share."""
    seen: Counter[str] = Counter()
    for item in items:
        of = SHARES.get(item.path.relative_to(ROOT).as_posix(), 1)
        test, is_case, _ = item.nodeid.partition("[")
        if of > 1 and is_case:
            number = seen[test]
            seen[test] += 1
            if (number + number // of) % of:
                item.add_marker(pytest.mark.slow)
