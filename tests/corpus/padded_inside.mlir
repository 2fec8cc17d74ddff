// arguments of seed 2
module @fuzz attributes {mhlo.cross_program_prefetches = [], mhlo.input_output_alias = [], mhlo.is_dynamic = false, mhlo.use_auto_spmd_partitioning = false} {
  func.func @main(%arg0: tensor<128x3x1x1xf32>, %arg1: tensor<16x4xui8>) -> (tensor<18x12xui8>, tensor<1x2x1x1xf32>) {
    %c = stablehlo.constant dense<1> : tensor<ui8>
    %0 = stablehlo.pad %arg1, %c, low = [3, 0], high = [-1, 2], interior = [0, 2] : (tensor<16x4xui8>, tensor<ui8>) -> tensor<18x12xui8>
    %cst = stablehlo.constant dense<-1.000000e+00> : tensor<f32>
    %cst_0 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %1 = stablehlo.clamp %cst, %arg0, %cst_0 : (tensor<f32>, tensor<128x3x1x1xf32>, tensor<f32>) -> tensor<128x3x1x1xf32>
    %2 = stablehlo.dot_general %1, %arg0, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<128x3x1x1xf32>, tensor<128x3x1x1xf32>) -> tensor<1x1x1x1xf32>
    %cst_1 = stablehlo.constant dense<0.001953125> : tensor<f32>
    %3 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f32>) -> tensor<1x1x1x1xf32>
    %4 = stablehlo.multiply %2, %3 : tensor<1x1x1x1xf32>
    %5 = stablehlo.concatenate %4, %4, dim = 1 : (tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>) -> tensor<1x2x1x1xf32>
    return %0, %5 : tensor<18x12xui8>, tensor<1x2x1x1xf32>
  }
}
