// arguments of seed 1
module @fuzz attributes {mhlo.cross_program_prefetches = [], mhlo.input_output_alias = [], mhlo.is_dynamic = false, mhlo.use_auto_spmd_partitioning = false} {
  func.func private @body_25(%arg0: tensor<i64>, %arg1: tensor<i64>) -> tensor<i64> {
    %0 = stablehlo.maximum %arg0, %arg1 : tensor<i64>
    return %0 : tensor<i64>
  }
  func.func @main(%arg0: tensor<100xf16>, %arg1: tensor<1x128x1xf32>, %arg2: tensor<100xi64>, %arg3: tensor<i64>, %arg4: tensor<i8>, %arg5: tensor<1x5xi16>, %arg6: tensor<3x5xui16>) -> (tensor<1x80x1xf32>, tensor<32xf16>) {
    %0 = stablehlo.slice %arg5 [0:1, 0:1] : (tensor<1x5xi16>) -> tensor<1x1xi16>
    %1 = stablehlo.reshape %0 : (tensor<1x1xi16>) -> tensor<i16>
    %2 = stablehlo.reshape %arg4 : (tensor<i8>) -> tensor<1xi8>
    %3 = stablehlo.concatenate %2, dim = 0 : (tensor<1xi8>) -> tensor<1xi8>
    %4 = "stablehlo.scatter"(%arg2, %3, %arg3) <{indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0]>, unique_indices = false}> ({
    ^bb0(%arg7: tensor<i64>, %arg8: tensor<i64>):
      %16 = stablehlo.maximum %arg7, %arg8 : tensor<i64>
      stablehlo.return %16 : tensor<i64>
    }) : (tensor<100xi64>, tensor<1xi8>, tensor<i64>) -> tensor<100xi64>
    %5 = stablehlo.slice %4 [0:1] : (tensor<100xi64>) -> tensor<1xi64>
    %6 = stablehlo.reshape %5 : (tensor<1xi64>) -> tensor<i64>
    %7 = stablehlo.convert %6 : (tensor<i64>) -> tensor<i16>
    %8 = stablehlo.slice %arg6 [0:1, 0:1] : (tensor<3x5xui16>) -> tensor<1x1xui16>
    %9 = stablehlo.reshape %8 : (tensor<1x1xui16>) -> tensor<ui16>
    %10 = stablehlo.convert %9 : (tensor<ui16>) -> tensor<i16>
    %11 = stablehlo.dynamic_slice %arg1, %1, %7, %10, sizes = [1, 80, 1] : (tensor<1x128x1xf32>, tensor<i16>, tensor<i16>, tensor<i16>) -> tensor<1x80x1xf32>
    %12 = stablehlo.broadcast_in_dim %arg0, dims = [1] : (tensor<100xf16>) -> tensor<32x100xf16>
    %13 = stablehlo.dot %12, %arg0, precision = [DEFAULT, DEFAULT] : (tensor<32x100xf16>, tensor<100xf16>) -> tensor<32xf16>
    %cst = stablehlo.constant dense<3.906250e-03> : tensor<f16>
    %14 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f16>) -> tensor<32xf16>
    %15 = stablehlo.multiply %13, %14 : tensor<32xf16>
    return %11, %15 : tensor<1x80x1xf32>, tensor<32xf16>
  }
}
