"""What `make test` leaves to `make test-slow`: tests that take long, alone or all cases together.

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
    "tests/api/test_as_xla.py": 2,
    "tests/api/test_devices.py": 2,
    "tests/api/test_leave.py": 2,
    "tests/behaviour/test_around.py": 4,
    "tests/behaviour/test_classes.py": 2,
    "tests/behaviour/test_effects.py": 2,
    "tests/behaviour/test_errors.py": 4,
    "tests/behaviour/test_transformations.py": 6,
    "tests/behaviour/test_wrappings.py": 4,
    "tests/benchmarks/test_corpus.py": 6,
    "tests/benchmarks/test_loops.py": 8,
    "tests/benchmarks/test_unseen.py": 3,
    "tests/benchmarks/test_workloads.py": 4,
    "tests/cli/test_doctor.py": 2,
    "tests/cli/test_emit.py": 4,
    "tests/cli/test_mistakes.py": 3,
    "tests/cli/test_one_line.py": 3,
    "tests/clients/test_diffrax.py": 8,
    "tests/clients/test_optax.py": 4,
    "tests/codegen/test_architectures.py": 4,
    "tests/codegen/test_barriers.py": 2,
    "tests/codegen/test_cluster_loops.py": 6,
    "tests/codegen/test_deep_programs.py": 4,
    "tests/codegen/test_expressions.py": 3,
    "tests/codegen/test_factors.py": 2,
    "tests/codegen/test_followed.py": 8,
    "tests/codegen/test_kernels.py": 10,
    "tests/codegen/test_left_out.py": 3,
    "tests/codegen/test_loop_sizes.py": 2,
    "tests/codegen/test_loops_in_branches.py": 4,
    "tests/codegen/test_loops_in_place.py": 4,
    "tests/codegen/test_neighbours.py": 2,
    "tests/codegen/test_once.py": 4,
    "tests/codegen/test_pads.py": 4,
    "tests/codegen/test_phased_loops.py": 6,
    "tests/codegen/test_roundings.py": 8,
    "tests/codegen/test_scan_trees.py": 2,
    "tests/codegen/test_scopes.py": 3,
    "tests/codegen/test_shared_starts.py": 6,
    "tests/codegen/test_small_matrices.py": 2,
    "tests/codegen/test_snapshots.py": 2,
    "tests/codegen/test_streams.py": 4,
    "tests/codegen/test_tallies.py": 8,
    "tests/codegen/test_tuning.py": 8,
    "tests/codegen/test_whole_loops.py": 4,
    "tests/codegen/test_wide_indices.py": 3,
    "tests/codegen/test_widened.py": 4,
    "tests/costmodel/test_every_number.py": 6,
    "tests/coverage/test_arithmetic.py": 16,
    "tests/coverage/test_data.py": 16,
    "tests/dag/test_benchmarks.py": 3,
    "tests/examples/test_examples.py": 12,
    "tests/faults/test_faults.py": 8,
    "tests/faults/test_inside_xla.py": 3,
    "tests/faults/test_interrupts.py": 2,
    "tests/fuzz/test_corpus.py": 4,
    "tests/guard/test_sides.py": 4,
    "tests/hlo/test_evaluate.py": 2,
    "tests/integration/test_kernel_counts.py": 4,
    "tests/integration/test_light.py": 2,
    "tests/integration/test_nothing.py": 3,
    "tests/integration/test_packaging.py": 3,
    "tests/integration/test_programs.py": 12,
    "tests/integration/test_rare_ops.py": 2,
    "tests/integration/test_sizes.py": 8,
    "tests/loops/test_grown_loops.py": 4,
    "tests/loops/test_reduced.py": 2,
    "tests/loops/test_row_queries.py": 6,
    "tests/loops/test_samplers.py": 8,
    "tests/loops/test_tables.py": 4,
    "tests/loops/test_values_of_rows.py": 8,
    "tests/loops/test_written_back.py": 6,
    "tests/numbers/test_narrow_floats.py": 2,
    "tests/numbers/test_reducers.py": 4,
    "tests/numbers/test_signed_zeros.py": 3,
    "tests/numbers/test_windows.py": 3,
    "tests/patterns/test_loop_constants.py": 2,
    "tests/patterns/test_loop_residuals.py": 4,
    "tests/patterns/test_loop_tables.py": 2,
    "tests/patterns/test_recompute.py": 2,
    "tests/plan/test_drafts.py": 2,
    "tests/replay/test_replay.py": 8,
    "tests/runtime/test_emulate_faults.py": 2,
    "tests/runtime/test_images.py": 2,
    "tests/runtime/test_unloading.py": 2,
    "tests/test_programs.py": 4,
    "tests/test_readme.py": 3,
    "tests/trial/test_described.py": 4,
}

#: Tests without cases that take longest: other tests of their files look at the same, in less.
LONG = frozenset(
    {
        "tests/benchmarks/test_driver_calls.py::test_both_sides_of_a_program",
        "tests/benchmarks/test_first_call.py::test_a_program_on_both_sides",
        "tests/benchmarks/test_memory.py::test_an_example_in_processes_of_its_own",
        "tests/cli/test_emit.py::test_nvcc_takes_a_file_within_a_host_program",
        "tests/codegen/test_followed.py::test_a_kernel_of_a_program_is_what_its_template_says",
        "tests/coverage/test_limits.py::test_every_op_that_kernels_know_is_in_a_case",
        "tests/coverage/test_limits.py::test_the_page_of_limits_is_what_the_table_gives",
        "tests/coverage/test_limits.py::test_what_is_left_to_xla_has_a_reason",
        "tests/dag/test_benchmarks.py::test_a_long_program_leaks_nothing",
        "tests/examples/test_examples.py::test_unrolled_and_scanned_recurrences_agree",
        "tests/loops/test_grown_loops.py::test_grown_loops_have_every_form",
        "tests/loops/test_long_run.py::test_a_process_that_dies_costs_one_program",
        "tests/patterns/test_loop_rules.py::test_rules_do_not_go_as_deep_as_an_iteration",
        "tests/runtime/test_unloading.py::test_an_image_is_shared_and_lives_until_the_last_program_goes",
    }
)


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
        if test in LONG:
            item.add_marker(pytest.mark.slow)
        if of > 1 and is_case:
            number = seen[test]
            seen[test] += 1
            if (number + number // of) % of:
                item.add_marker(pytest.mark.slow)
