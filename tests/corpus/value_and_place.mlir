// arguments of seed 3
module @fuzz attributes {mhlo.cross_program_prefetches = [], mhlo.input_output_alias = [], mhlo.is_dynamic = false, mhlo.use_auto_spmd_partitioning = false} {
  func.func private @body_21(%arg0: tensor<ui32>, %arg1: tensor<ui32>) -> tensor<ui32> {
    %0 = stablehlo.minimum %arg0, %arg1 : tensor<ui32>
    return %0 : tensor<ui32>
  }
  func.func private @body_25(%arg0: tensor<ui32>, %arg1: tensor<i64>, %arg2: tensor<ui32>, %arg3: tensor<i64>) -> (tensor<ui32>, tensor<i64>) {
    %0 = stablehlo.compare GT, %arg0, %arg2 : (tensor<ui32>, tensor<ui32>) -> tensor<i1>
    %1 = stablehlo.compare EQ, %arg0, %arg2 : (tensor<ui32>, tensor<ui32>) -> tensor<i1>
    %2 = stablehlo.compare LT, %arg1, %arg3 : (tensor<i64>, tensor<i64>) -> tensor<i1>
    %3 = stablehlo.and %1, %2 : tensor<i1>
    %4 = stablehlo.or %0, %3 : tensor<i1>
    %5 = stablehlo.select %4, %arg0, %arg2 : tensor<i1>, tensor<ui32>
    %6 = stablehlo.select %4, %arg1, %arg3 : tensor<i1>, tensor<i64>
    return %5, %6 : tensor<ui32>, tensor<i64>
  }
  func.func private @body_38(%arg0: tensor<ui32>, %arg1: tensor<ui32>) -> tensor<ui32> {
    %0 = stablehlo.add %arg0, %arg1 : tensor<ui32>
    return %0 : tensor<ui32>
  }
  func.func private @body_42(%arg0: tensor<ui32>, %arg1: tensor<ui32>) -> tensor<ui32> {
    %0 = stablehlo.add %arg0, %arg1 : tensor<ui32>
    return %0 : tensor<ui32>
  }
  func.func @main(%arg0: tensor<16x31x3xui32>, %arg1: tensor<31xui32>, %arg2: tensor<31xui8>, %arg3: tensor<1xi32>, %arg4: tensor<1x31xui32>) -> (tensor<16x31x3xi1>, tensor<31x16x3xi1>, tensor<16x31xi64>, tensor<16x1x31x3xui32>, tensor<16x31xui32>) {
    %0 = stablehlo.multiply %arg0, %arg0 : tensor<16x31x3xui32>
    %1 = stablehlo.compare EQ, %arg0, %0 : (tensor<16x31x3xui32>, tensor<16x31x3xui32>) -> tensor<16x31x3xi1>
    %2 = stablehlo.and %1, %1 : tensor<16x31x3xi1>
    %3 = stablehlo.transpose %1, dims = [1, 0, 2] : (tensor<16x31x3xi1>) -> tensor<31x16x3xi1>
    %4 = stablehlo.iota dim = 2 : tensor<16x31x3xi64>
    %c = stablehlo.constant dense<0> : tensor<ui32>
    %c_0 = stablehlo.constant dense<9223372036854775807> : tensor<i64>
    %5:2 = stablehlo.reduce(%arg0 init: %c), (%4 init: %c_0) across dimensions = [2] : (tensor<16x31x3xui32>, tensor<16x31x3xi64>, tensor<ui32>, tensor<i64>) -> (tensor<16x31xui32>, tensor<16x31xi64>)
     reducer(%arg5: tensor<ui32>, %arg7: tensor<ui32>) (%arg6: tensor<i64>, %arg8: tensor<i64>)  {
      %10 = stablehlo.compare GT, %arg5, %arg7 : (tensor<ui32>, tensor<ui32>) -> tensor<i1>
      %11 = stablehlo.compare EQ, %arg5, %arg7 : (tensor<ui32>, tensor<ui32>) -> tensor<i1>
      %12 = stablehlo.compare LT, %arg6, %arg8 : (tensor<i64>, tensor<i64>) -> tensor<i1>
      %13 = stablehlo.and %11, %12 : tensor<i1>
      %14 = stablehlo.or %10, %13 : tensor<i1>
      %15 = stablehlo.select %14, %arg5, %arg7 : tensor<i1>, tensor<ui32>
      %16 = stablehlo.select %14, %arg6, %arg8 : tensor<i1>, tensor<i64>
      stablehlo.return %15, %16 : tensor<ui32>, tensor<i64>
    }
    %c_1 = stablehlo.constant dense<4294967295> : tensor<ui32>
    %6 = "stablehlo.reduce_window"(%0, %c_1) <{base_dilations = array<i64: 1, 1, 1>, padding = dense<[[0, 15], [0, 0], [0, 0]]> : tensor<3x2xi64>, window_dilations = array<i64: 1, 1, 1>, window_dimensions = array<i64: 16, 1, 1>, window_strides = array<i64: 1, 1, 1>}> ({
    ^bb0(%arg5: tensor<ui32>, %arg6: tensor<ui32>):
      %10 = stablehlo.minimum %arg5, %arg6 : tensor<ui32>
      stablehlo.return %10 : tensor<ui32>
    }) : (tensor<16x31x3xui32>, tensor<ui32>) -> tensor<16x31x3xui32>
    %7 = stablehlo.broadcast_in_dim %6, dims = [0, 2, 3] : (tensor<16x31x3xui32>) -> tensor<16x1x31x3xui32>
    %8 = "stablehlo.scatter"(%5#0, %arg2, %arg1) <{indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], input_batching_dims = [1], scatter_indices_batching_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, unique_indices = false}> ({
    ^bb0(%arg5: tensor<ui32>, %arg6: tensor<ui32>):
      %10 = stablehlo.add %arg5, %arg6 : tensor<ui32>
      stablehlo.return %10 : tensor<ui32>
    }) : (tensor<16x31xui32>, tensor<31xui8>, tensor<31xui32>) -> tensor<16x31xui32>
    %9 = "stablehlo.scatter"(%8, %arg3, %arg4) <{indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, unique_indices = false}> ({
    ^bb0(%arg5: tensor<ui32>, %arg6: tensor<ui32>):
      %10 = stablehlo.add %arg5, %arg6 : tensor<ui32>
      stablehlo.return %10 : tensor<ui32>
    }) : (tensor<16x31xui32>, tensor<1xi32>, tensor<1x31xui32>) -> tensor<16x31xui32>
    return %2, %3, %5#1, %7, %9 : tensor<16x31x3xi1>, tensor<31x16x3xi1>, tensor<16x31xi64>, tensor<16x1x31x3xui32>, tensor<16x31xui32>
  }
}
