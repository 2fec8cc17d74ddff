// arguments of seed 1
module @fuzz attributes {mhlo.cross_program_prefetches = [], mhlo.input_output_alias = [], mhlo.is_dynamic = false, mhlo.use_auto_spmd_partitioning = false} {
  func.func private @body_16(%arg0: tensor<f32>, %arg1: tensor<f32>) -> tensor<f32> {
    %0 = stablehlo.minimum %arg0, %arg1 : tensor<f32>
    return %0 : tensor<f32>
  }
  func.func private @body_20(%arg0: tensor<f32>, %arg1: tensor<f32>) -> tensor<f32> {
    %0 = stablehlo.maximum %arg0, %arg1 : tensor<f32>
    %1 = stablehlo.subtract %arg0, %arg1 : tensor<f32>
    %2 = stablehlo.abs %1 : tensor<f32>
    %3 = stablehlo.negate %2 : tensor<f32>
    %4 = stablehlo.exponential %3 : tensor<f32>
    %5 = stablehlo.log_plus_one %4 : tensor<f32>
    %6 = stablehlo.add %0, %5 : tensor<f32>
    return %6 : tensor<f32>
  }
  func.func @main(%arg0: tensor<16x1xf32>, %arg1: tensor<12xi64>, %arg2: tensor<12x1xf32>) -> (tensor<16xf32>, tensor<16x1xf32>, tensor<12x1xi1>) {
    %0 = "stablehlo.scatter"(%arg0, %arg1, %arg2) <{indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, unique_indices = false}> ({
    ^bb0(%arg3: tensor<f32>, %arg4: tensor<f32>):
      %11 = stablehlo.minimum %arg3, %arg4 : tensor<f32>
      stablehlo.return %11 : tensor<f32>
    }) : (tensor<16x1xf32>, tensor<12xi64>, tensor<12x1xf32>) -> tensor<16x1xf32>
    %cst = stablehlo.constant dense<-1.000000e+04> : tensor<f32>
    %1 = stablehlo.reduce(%0 init: %cst) across dimensions = [1] : (tensor<16x1xf32>, tensor<f32>) -> tensor<16xf32>
     reducer(%arg3: tensor<f32>, %arg4: tensor<f32>)  {
      %11 = stablehlo.maximum %arg3, %arg4 : tensor<f32>
      %12 = stablehlo.subtract %arg3, %arg4 : tensor<f32>
      %13 = stablehlo.abs %12 : tensor<f32>
      %14 = stablehlo.negate %13 : tensor<f32>
      %15 = stablehlo.exponential %14 : tensor<f32>
      %16 = stablehlo.log_plus_one %15 : tensor<f32>
      %17 = stablehlo.add %11, %16 : tensor<f32>
      stablehlo.return %17 : tensor<f32>
    }
    %2 = stablehlo.sine %arg0 : tensor<16x1xf32>
    %3 = stablehlo.slice %arg2 [0:8, 0:1] : (tensor<12x1xf32>) -> tensor<8x1xf32>
    %4 = stablehlo.negate %3 : tensor<8x1xf32>
    %5 = stablehlo.slice %arg1 [0:1] : (tensor<12xi64>) -> tensor<1xi64>
    %6 = stablehlo.reshape %5 : (tensor<1xi64>) -> tensor<i64>
    %7 = stablehlo.slice %arg1 [0:1] : (tensor<12xi64>) -> tensor<1xi64>
    %8 = stablehlo.reshape %7 : (tensor<1xi64>) -> tensor<i64>
    %9 = stablehlo.dynamic_update_slice %arg2, %4, %6, %8 : (tensor<12x1xf32>, tensor<8x1xf32>, tensor<i64>, tensor<i64>) -> tensor<12x1xf32>
    %10 = stablehlo.compare EQ, %arg2, %9 : (tensor<12x1xf32>, tensor<12x1xf32>) -> tensor<12x1xi1>
    return %1, %2, %10 : tensor<16xf32>, tensor<16x1xf32>, tensor<12x1xi1>
  }
}
