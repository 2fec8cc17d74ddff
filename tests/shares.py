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
    "tests/behaviour/test_errors.py": 2,
    "tests/behaviour/test_transformations.py": 2,
    "tests/behaviour/test_wrappings.py": 2,
    "tests/benchmarks/test_corpus.py": 3,
    "tests/benchmarks/test_loops.py": 4,
    "tests/cli/test_emit.py": 2,
    "tests/clients/test_diffrax.py": 2,
    "tests/codegen/test_cluster_loops.py": 2,
    "tests/codegen/test_deep_programs.py": 2,
    "tests/codegen/test_followed.py": 2,
    "tests/codegen/test_kernels.py": 2,
    "tests/codegen/test_loops_in_branches.py": 2,
    "tests/codegen/test_loops_in_place.py": 2,
    "tests/codegen/test_once.py": 2,
    "tests/codegen/test_phased_loops.py": 2,
    "tests/codegen/test_roundings.py": 2,
    "tests/codegen/test_streams.py": 2,
    "tests/codegen/test_tallies.py": 2,
    "tests/codegen/test_tuning.py": 2,
    "tests/codegen/test_whole_loops.py": 2,
    "tests/costmodel/test_every_number.py": 2,
    "tests/coverage/test_arithmetic.py": 4,
    "tests/coverage/test_data.py": 4,
    "tests/examples/test_examples.py": 3,
    "tests/faults/test_faults.py": 2,
    "tests/guard/test_sides.py": 2,
    "tests/integration/test_kernel_counts.py": 2,
    "tests/integration/test_programs.py": 2,
    "tests/integration/test_sizes.py": 2,
    "tests/loops/test_asks.py": 3,
    "tests/loops/test_grown_loops.py": 2,
    "tests/loops/test_samplers.py": 2,
    "tests/loops/test_tables.py": 2,
    "tests/loops/test_values_of_rows.py": 2,
    "tests/loops/test_written_back.py": 2,
    "tests/numbers/test_reducers.py": 2,
}


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
