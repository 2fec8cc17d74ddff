"""Reading Nsight Compute's counters."""

from __future__ import annotations

from benchmarks.dram import total

LOG = """==PROF== Connected to process 1
==PROF== Disconnected
"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"
"0","softmax","dram__bytes_read.sum","byte","134,217,728"
"0","softmax","dram__bytes_write.sum","byte","100"
"1","copy","dram__bytes_read.sum","byte","28"
"1","copy","sm__cycles_elapsed.max","cycle","9"
"""


def test_bytes_of_all_kernels_are_summed() -> None:
    assert total(LOG.splitlines()) == 134_217_856


def test_a_program_without_kernels_has_no_count() -> None:
    assert total(["==ERROR== No kernels were profiled"]) is None
