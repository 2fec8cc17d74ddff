// arguments of seed 1
module @fuzz attributes {mhlo.cross_program_prefetches = [], mhlo.input_output_alias = [], mhlo.is_dynamic = false, mhlo.use_auto_spmd_partitioning = false} {
  func.func private @body_18(%arg0: tensor<ui16>, %arg1: tensor<ui16>) -> tensor<ui16> {
    return %arg1 : tensor<ui16>
  }
  func.func private @body_21(%arg0: tensor<i64>, %arg1: tensor<i64>) -> tensor<i64> {
    %0 = stablehlo.add %arg0, %arg1 : tensor<i64>
    return %0 : tensor<i64>
  }
  func.func @main(%arg0: tensor<32xi64>, %arg1: tensor<i64>, %arg2: tensor<32xui16>, %arg3: tensor<32xi8>, %arg4: tensor<7xi32>) -> (tensor<1xui8>, tensor<1xi64>, tensor<32x4xui16>, tensor<36xui16>, tensor<32xi64>) {
    %0 = stablehlo.convert %arg1 : (tensor<i64>) -> tensor<ui8>
    %1 = stablehlo.reshape %0 : (tensor<ui8>) -> tensor<1xui8>
    %2 = stablehlo.broadcast_in_dim %arg1, dims = [] : (tensor<i64>) -> tensor<1xi64>
    %3 = stablehlo.bitcast_convert %arg0 : (tensor<32xi64>) -> tensor<32x4xui16>
    %4 = stablehlo.iota dim = 0 : tensor<32x1xi8>
    %5 = stablehlo.reshape %arg3 : (tensor<32xi8>) -> tensor<32x1xi8>
    %6 = stablehlo.concatenate %4, %5, dim = 1 : (tensor<32x1xi8>, tensor<32x1xi8>) -> tensor<32x2xi8>
    %7 = "stablehlo.scatter"(%3, %6, %arg2) <{indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0, 1], scatter_dims_to_operand_dims = [0, 1], index_vector_dim = 1>, unique_indices = false}> ({
    ^bb0(%arg5: tensor<ui16>, %arg6: tensor<ui16>):
      stablehlo.return %arg6 : tensor<ui16>
    }) : (tensor<32x4xui16>, tensor<32x2xi8>, tensor<32xui16>) -> tensor<32x4xui16>
    %c = stablehlo.constant dense<1> : tensor<ui16>
    %8 = stablehlo.pad %arg2, %c, low = [3], high = [1], interior = [0] : (tensor<32xui16>, tensor<ui16>) -> tensor<36xui16>
    %9 = stablehlo.broadcast_in_dim %arg1, dims = [] : (tensor<i64>) -> tensor<7xi64>
    %10 = "stablehlo.scatter"(%arg0, %arg4, %9) <{indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, unique_indices = false}> ({
    ^bb0(%arg5: tensor<i64>, %arg6: tensor<i64>):
      %11 = stablehlo.add %arg5, %arg6 : tensor<i64>
      stablehlo.return %11 : tensor<i64>
    }) : (tensor<32xi64>, tensor<7xi32>, tensor<7xi64>) -> tensor<32xi64>
    return %1, %2, %7, %8, %10 : tensor<1xui8>, tensor<1xi64>, tensor<32x4xui16>, tensor<36xui16>, tensor<32xi64>
  }
}
