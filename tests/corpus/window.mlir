// arguments of seed 0
module @fuzz attributes {mhlo.cross_program_prefetches = [], mhlo.input_output_alias = [], mhlo.is_dynamic = false, mhlo.use_auto_spmd_partitioning = false} {
  func.func private @body_16(%arg0: tensor<f32>, %arg1: tensor<f32>) -> tensor<f32> {
    %0 = stablehlo.add %arg0, %arg1 : tensor<f32>
    return %0 : tensor<f32>
  }
  func.func private @body_20(%arg0: tensor<bf16>, %arg1: tensor<bf16>) -> tensor<bf16> {
    %0 = stablehlo.minimum %arg0, %arg1 : tensor<bf16>
    return %0 : tensor<bf16>
  }
  func.func @main(%arg0: tensor<8xbf16>, %arg1: tensor<3xf32>, %arg2: tensor<ui64>) -> (tensor<1x8xbf16>, tensor<2xf32>, tensor<1xbf16>, tensor<32x8x1x1xi32>) {
    %0 = stablehlo.reshape %arg0 : (tensor<8xbf16>) -> tensor<1x8xbf16>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %1 = "stablehlo.reduce_window"(%arg1, %cst) <{base_dilations = array<i64: 1>, padding = dense<[[1, 0]]> : tensor<1x2xi64>, window_dilations = array<i64: 2>, window_dimensions = array<i64: 1>, window_strides = array<i64: 2>}> ({
    ^bb0(%arg3: tensor<f32>, %arg4: tensor<f32>):
      %9 = stablehlo.add %arg3, %arg4 : tensor<f32>
      stablehlo.return %9 : tensor<f32>
    }) : (tensor<3xf32>, tensor<f32>) -> tensor<2xf32>
    %cst_0 = stablehlo.constant dense<2.000000e+00> : tensor<bf16>
    %2 = stablehlo.negate %cst_0 : tensor<bf16>
    %3 = stablehlo.slice %arg2 [] : (tensor<ui64>) -> tensor<ui64>
    %4 = stablehlo.reshape %3 : (tensor<ui64>) -> tensor<ui64>
    %5 = stablehlo.dynamic_slice %arg0, %4, sizes = [2] : (tensor<8xbf16>, tensor<ui64>) -> tensor<2xbf16>
    %cst_1 = stablehlo.constant dense<0x7F80> : tensor<bf16>
    %6 = "stablehlo.reduce_window"(%5, %cst_1) <{base_dilations = array<i64: 1>, padding = dense<[[2, 1]]> : tensor<1x2xi64>, window_dilations = array<i64: 1>, window_dimensions = array<i64: 5>, window_strides = array<i64: 1>}> ({
    ^bb0(%arg3: tensor<bf16>, %arg4: tensor<bf16>):
      %9 = stablehlo.minimum %arg3, %arg4 : tensor<bf16>
      stablehlo.return %9 : tensor<bf16>
    }) : (tensor<2xbf16>, tensor<bf16>) -> tensor<1xbf16>
    %7 = stablehlo.clamp %2, %6, %cst_0 : (tensor<bf16>, tensor<1xbf16>, tensor<bf16>) -> tensor<1xbf16>
    %8 = stablehlo.iota dim = 1 : tensor<32x8x1x1xi32>
    return %0, %1, %7, %8 : tensor<1x8xbf16>, tensor<2xf32>, tensor<1xbf16>, tensor<32x8x1x1xi32>
  }
}
