// arguments of seed 2
module @fuzz attributes {mhlo.cross_program_prefetches = [], mhlo.input_output_alias = [], mhlo.is_dynamic = false, mhlo.use_auto_spmd_partitioning = false} {
  func.func private @body_18(%arg0: tensor<bf16>, %arg1: tensor<bf16>) -> tensor<bf16> {
    %0 = stablehlo.maximum %arg0, %arg1 : tensor<bf16>
    return %0 : tensor<bf16>
  }
  func.func @main(%arg0: tensor<2xbf16>, %arg1: tensor<64x1x100x1xf64>, %arg2: tensor<8xui32>) -> (tensor<1x1x1x1xf64>, tensor<2xf64>, tensor<2xbf16>, tensor<1x8xf64>, tensor<2xf64>) {
    %0 = stablehlo.dot_general %arg1, %arg1, contracting_dims = [0, 2] x [0, 2], precision = [DEFAULT, DEFAULT] : (tensor<64x1x100x1xf64>, tensor<64x1x100x1xf64>) -> tensor<1x1x1x1xf64>
    %cst = stablehlo.constant dense<6.103515625E-5> : tensor<f64>
    %1 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f64>) -> tensor<1x1x1x1xf64>
    %2 = stablehlo.multiply %0, %1 : tensor<1x1x1x1xf64>
    %cst_0 = stablehlo.constant dense<0xFF80> : tensor<bf16>
    %3 = stablehlo.reduce(%arg0 init: %cst_0) applies stablehlo.maximum across dimensions = [0] : (tensor<2xbf16>, tensor<bf16>) -> tensor<bf16>
    %4 = stablehlo.broadcast_in_dim %3, dims = [] : (tensor<bf16>) -> tensor<2xbf16>
    %5 = stablehlo.subtract %arg0, %4 : tensor<2xbf16>
    %6 = stablehlo.convert %5 : (tensor<2xbf16>) -> tensor<2xf64>
    %7 = stablehlo.abs %6 : tensor<2xf64>
    %8 = stablehlo.abs %5 : tensor<2xbf16>
    %9 = stablehlo.negate %8 : tensor<2xbf16>
    %10 = stablehlo.exponential %9 : tensor<2xbf16>
    %11 = "stablehlo.gather"(%6, %arg2) <{dimension_numbers = #stablehlo.gather<offset_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 1>}> : (tensor<2xf64>, tensor<8xui32>) -> tensor<1x8xf64>
    return %2, %7, %10, %11, %6 : tensor<1x1x1x1xf64>, tensor<2xf64>, tensor<2xbf16>, tensor<1x8xf64>, tensor<2xf64>
  }
}
