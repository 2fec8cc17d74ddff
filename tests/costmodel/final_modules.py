"""What XLA was seen to launch.

A scheduled module as XLA:GPU prints one, by hand: a product of a library and a reduction over the
tanh of it in a CUDA graph, a loop, a Triton kernel, and unknown words. And a run of just what the
model guesses.
"""

from __future__ import annotations

from collections.abc import Sequence

from fusionstitch.costmodel.xla_final import Emitter, FinalKernel, FinalOp
from fusionstitch.costmodel.xla_fusions import XlaPlan
from fusionstitch.costmodel.xla_truth import XlaTruth
from fusionstitch.hlo.graph import ids

GPU = """HloModule jit_step, is_scheduled=true, entry_computation_layout={(f32[2304,768]{1,0}, \
f32[768,768]{1,0})->(f32[2304]{0}, f32[64]{0})}, num_partitions=1, what_nobody_knows={7}, \
frontend_attributes={fingerprint_before_lhs="cc3"}

%adder (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %add.6 = f32[] add(%a, %b)
}

%fused_reduce (param_0.1: f32[2304,768]) -> f32[2304] {
  %param_0.1 = f32[2304,768]{1,0} parameter(0)
  %tanh.2.1 = f32[2304,768]{1,0} tanh(%param_0.1), metadata={op_name="jit(step)/tanh" \
source_file="/x/a.py" source_line=3 source_end_line=3 source_column=4 source_end_column=9}
  %constant_1 = f32[] constant(0)
  ROOT %reduce_sum.5 = f32[2304]{0} reduce(%tanh.2.1, %constant_1), dimensions={1}, \
to_apply=%adder, metadata={op_name="jit(step)/reduce_sum" stack_frame_id=2}
}

%command_buffer (p: f32[2304,768], p.1: f32[768,768]) -> f32[2304] {
  %p = f32[2304,768]{1,0} parameter(0)
  %p.1 = f32[768,768]{1,0} parameter(1)
  %cublas-gemm.1.0 = (f32[2304,768]{1,0}, s8[4194304]{0}) custom-call(%p, %p.1), \
custom_call_target="__cublas$gemm", metadata={op_name="jit(step)/dot_general"}, \
backend_config={"operation_queue_id":"0","gemm_backend_config":{"alpha_real":1,"beta":0,\
"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"],\
"lhs_batch_dimensions":[],"rhs_batch_dimensions":[]},"precision_config":{"operand_precision":\
["DEFAULT","DEFAULT"],"algorithm":"ALG_UNSET"},"epilogue":"DEFAULT"}}
  %get-tuple-element.1 = f32[2304,768]{1,0} get-tuple-element(%cublas-gemm.1.0), index=0
  ROOT %input_reduce_fusion.1 = f32[2304]{0} fusion(%get-tuple-element.1), kind=kInput, \
calls=%fused_reduce, metadata={op_name="jit(step)/reduce_sum"}, \
backend_config={"operation_queue_id":"0","reification_cost":[{"name":"gpu-cost-model"}]}
}

%softmax_computation (q: f32[64]) -> f32[64] {
  %q = f32[64]{0} parameter(0)
  ROOT %exp.3 = f32[64]{0} exponential(%q), metadata={op_name="jit(step)/while/body/exp"}
}

%body (carried: (s32[], f32[64])) -> (s32[], f32[64]) {
  %carried = (s32[], f32[64]{0}) parameter(0)
  %i = s32[] get-tuple-element(%carried), index=0
  %v = f32[64]{0} get-tuple-element(%carried), index=1
  %triton_softmax.2 = f32[64]{0} fusion(%v), kind=kCustom, calls=%softmax_computation, \
backend_config={"fusion_backend_config":{"kind":"__triton","block_level_fusion_config":{}}}
  ROOT %tuple.1 = (s32[], f32[64]{0}) tuple(%i, %triton_softmax.2)
}

%condition (carried.1: (s32[], f32[64])) -> pred[] {
  %carried.1 = (s32[], f32[64]{0}) parameter(0)
  ROOT %true = pred[] constant(true)
}

ENTRY %main.7 (x: f32[2304,768], w: f32[768,768]) -> (f32[2304], f32[64]) {
  %w = f32[768,768]{1,0} parameter(1), metadata={op_name="w"}
  %x = f32[2304,768]{1,0} parameter(0), metadata={op_name="x"}
  %table = f32[64]{0} constant({...})
  %zero = s32[] constant(0)
  %small = s4[2]{0} constant({1, 2}), sharding={devices=[2,1]<=[2]}
  %copy-start.1 = (f32[64]{0}, f32[64]{0}, u32[]) copy-start(%table), cross_program_prefetch=1
  %copy-done.1 = f32[64]{0} copy-done(%copy-start.1)
  %start = (s32[], f32[64]{0}) tuple(%zero, %copy-done.1)
  %while.1 = (s32[], f32[64]{0}) while(%start), condition=%condition, body=%body, \
metadata={op_name="jit(step)/while"}, backend_config={"known_trip_count":{"n":"10"}}
  %call = f32[2304]{0} call(%x, %w), to_apply=%command_buffer
  %result = f32[64]{0} get-tuple-element(%while.1), index=1
  ROOT %tuple.2 = (f32[2304]{0}, f32[64]{0}) tuple(%call, %result)
}
"""


def as_seen(plan: XlaPlan, factors: Sequence[float]) -> XlaTruth:
    """A run in which XLA launches just what the model guesses, with its times by `factors`."""

    def final(number: int, factor: float) -> FinalKernel:
        kernel = plan.kernels[number]
        ops = tuple(
            FinalOp(op.name, op.opcode, op.source.op_name, op.dims, bool(kernel.written >> i & 1))
            for i in ids(kernel.bits)
            if (op := plan.graph.ops[i])
        )
        us = kernel.us
        return FinalKernel(f"k{number}", Emitter.LOOP, ops, "main", 1, 0, 0.0, us, us * factor)

    kernels = tuple(final(n, factor) for n, factor in enumerate(factors))
    return XlaTruth(sum(one.us for one in kernels), kernels)
