// arguments of seed 3
module @fuzz attributes {mhlo.cross_program_prefetches = [], mhlo.input_output_alias = [], mhlo.is_dynamic = false, mhlo.use_auto_spmd_partitioning = false} {
  func.func private @body_26(%arg0: tensor<f32>, %arg1: tensor<f32>, %arg2: tensor<f32>, %arg3: tensor<f32>, %arg4: tensor<f32>, %arg5: tensor<f32>) -> (tensor<f32>, tensor<f32>, tensor<f32>) {
    %0 = stablehlo.add %arg0, %arg3 : tensor<f32>
    %1 = stablehlo.add %arg1, %arg4 : tensor<f32>
    %2 = stablehlo.add %arg2, %arg5 : tensor<f32>
    return %0, %1, %2 : tensor<f32>, tensor<f32>, tensor<f32>
  }
  func.func @main(%arg0: tensor<512x2xf32>, %arg1: tensor<5x1xui32>) -> (tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<5x1x1x1x4xf32>, tensor<4x8x32xf32>) {
    %cst = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<512x2xf32>
    %1 = stablehlo.multiply %arg0, %arg0 : tensor<512x2xf32>
    %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %2:3 = stablehlo.reduce(%0 init: %cst_0), (%arg0 init: %cst_0), (%1 init: %cst_0) across dimensions = [0] : (tensor<512x2xf32>, tensor<512x2xf32>, tensor<512x2xf32>, tensor<f32>, tensor<f32>, tensor<f32>) -> (tensor<2xf32>, tensor<2xf32>, tensor<2xf32>)
     reducer(%arg2: tensor<f32>, %arg5: tensor<f32>) (%arg3: tensor<f32>, %arg6: tensor<f32>) (%arg4: tensor<f32>, %arg7: tensor<f32>)  {
      %15 = stablehlo.add %arg2, %arg5 : tensor<f32>
      %16 = stablehlo.add %arg3, %arg6 : tensor<f32>
      %17 = stablehlo.add %arg4, %arg7 : tensor<f32>
      stablehlo.return %15, %16, %17 : tensor<f32>, tensor<f32>, tensor<f32>
    }
    %cst_1 = stablehlo.constant dense<3.906250e-03> : tensor<f32>
    %3 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f32>) -> tensor<2xf32>
    %4 = stablehlo.multiply %2#0, %3 : tensor<2xf32>
    %cst_2 = stablehlo.constant dense<9.765625E-4> : tensor<f32>
    %5 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<f32>) -> tensor<2xf32>
    %6 = stablehlo.multiply %2#2, %5 : tensor<2xf32>
    %cst_3 = stablehlo.constant dense<0.001953125> : tensor<f32>
    %7 = stablehlo.broadcast_in_dim %cst_3, dims = [] : (tensor<f32>) -> tensor<2xf32>
    %8 = stablehlo.multiply %2#1, %7 : tensor<2xf32>
    %9 = stablehlo.reshape %arg0 : (tensor<512x2xf32>) -> tensor<4x8x32xf32>
    %10 = stablehlo.transpose %9, dims = [0, 1, 2] : (tensor<4x8x32xf32>) -> tensor<4x8x32xf32>
    %11 = stablehlo.reshape %arg1 : (tensor<5x1xui32>) -> tensor<5x1x1xui32>
    %12 = stablehlo.concatenate %11, %11, dim = 2 : (tensor<5x1x1xui32>, tensor<5x1x1xui32>) -> tensor<5x1x2xui32>
    %13 = "stablehlo.gather"(%10, %12) <{dimension_numbers = #stablehlo.gather<offset_dims = [2, 3], collapsed_slice_dims = [1], start_index_map = [2, 1], index_vector_dim = 2>, indices_are_sorted = false, slice_sizes = array<i64: 4, 1, 4>}> : (tensor<4x8x32xf32>, tensor<5x1x2xui32>) -> tensor<5x1x4x4xf32>
    %14 = "stablehlo.gather"(%13, %arg1) <{dimension_numbers = #stablehlo.gather<offset_dims = [2, 3, 4], operand_batching_dims = [0], start_indices_batching_dims = [0], start_index_map = [2], index_vector_dim = 2>, indices_are_sorted = false, slice_sizes = array<i64: 1, 1, 1, 4>}> : (tensor<5x1x4x4xf32>, tensor<5x1xui32>) -> tensor<5x1x1x1x4xf32>
    return %4, %6, %8, %14, %9 : tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<5x1x1x1x4xf32>, tensor<4x8x32xf32>
  }
}
