// arguments of seed 3
module @fuzz attributes {mhlo.cross_program_prefetches = [], mhlo.input_output_alias = [], mhlo.is_dynamic = false, mhlo.use_auto_spmd_partitioning = false} {
  func.func private @body_24(%arg0: tensor<f16>, %arg1: tensor<f16>, %arg2: tensor<f16>, %arg3: tensor<f16>, %arg4: tensor<f16>, %arg5: tensor<f16>) -> (tensor<f16>, tensor<f16>, tensor<f16>) {
    %0 = stablehlo.add %arg0, %arg3 : tensor<f16>
    %1 = stablehlo.add %arg1, %arg4 : tensor<f16>
    %2 = stablehlo.add %arg2, %arg5 : tensor<f16>
    return %0, %1, %2 : tensor<f16>, tensor<f16>, tensor<f16>
  }
  func.func private @body_35(%arg0: tensor<f16>, %arg1: tensor<f16>) -> tensor<f16> {
    %0 = stablehlo.add %arg0, %arg1 : tensor<f16>
    return %0 : tensor<f16>
  }
  func.func @main(%arg0: tensor<128x128x1xf16>, %arg1: tensor<1xi32>, %arg2: tensor<1x1xf16>) -> (tensor<128x1xf16>, tensor<128x1xf16>, tensor<1xi32>, tensor<129x2xf16>, tensor<128x1xf16>) {
    %cst = stablehlo.constant dense<1.000000e+00> : tensor<f16>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f16>) -> tensor<128x128x1xf16>
    %1 = stablehlo.multiply %arg0, %arg0 : tensor<128x128x1xf16>
    %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<f16>
    %2:3 = stablehlo.reduce(%0 init: %cst_0), (%arg0 init: %cst_0), (%1 init: %cst_0) across dimensions = [1] : (tensor<128x128x1xf16>, tensor<128x128x1xf16>, tensor<128x128x1xf16>, tensor<f16>, tensor<f16>, tensor<f16>) -> (tensor<128x1xf16>, tensor<128x1xf16>, tensor<128x1xf16>)
     reducer(%arg3: tensor<f16>, %arg6: tensor<f16>) (%arg4: tensor<f16>, %arg7: tensor<f16>) (%arg5: tensor<f16>, %arg8: tensor<f16>)  {
      %12 = stablehlo.add %arg3, %arg6 : tensor<f16>
      %13 = stablehlo.add %arg4, %arg7 : tensor<f16>
      %14 = stablehlo.add %arg5, %arg8 : tensor<f16>
      stablehlo.return %12, %13, %14 : tensor<f16>, tensor<f16>, tensor<f16>
    }
    %cst_1 = stablehlo.constant dense<3.906250e-03> : tensor<f16>
    %3 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f16>) -> tensor<128x1xf16>
    %4 = stablehlo.multiply %2#2, %3 : tensor<128x1xf16>
    %5 = stablehlo.slice %arg1 [0:1] : (tensor<1xi32>) -> tensor<1xi32>
    %6 = stablehlo.reshape %5 : (tensor<1xi32>) -> tensor<i32>
    %7 = stablehlo.dynamic_slice %arg1, %6, sizes = [1] : (tensor<1xi32>, tensor<i32>) -> tensor<1xi32>
    %8 = "stablehlo.scatter"(%2#1, %arg1, %arg2) <{indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, unique_indices = false}> ({
    ^bb0(%arg3: tensor<f16>, %arg4: tensor<f16>):
      %12 = stablehlo.add %arg3, %arg4 : tensor<f16>
      stablehlo.return %12 : tensor<f16>
    }) : (tensor<128x1xf16>, tensor<1xi32>, tensor<1x1xf16>) -> tensor<128x1xf16>
    %cst_2 = stablehlo.constant dense<3.906250e-03> : tensor<f16>
    %9 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<f16>) -> tensor<128x1xf16>
    %10 = stablehlo.multiply %8, %9 : tensor<128x1xf16>
    %cst_3 = stablehlo.constant dense<1.000000e+00> : tensor<f16>
    %11 = stablehlo.pad %10, %cst_3, low = [0, 1], high = [1, 0], interior = [0, 0] : (tensor<128x1xf16>, tensor<f16>) -> tensor<129x2xf16>
    return %2#0, %4, %7, %11, %2#1 : tensor<128x1xf16>, tensor<128x1xf16>, tensor<1xi32>, tensor<129x2xf16>, tensor<128x1xf16>
  }
}
