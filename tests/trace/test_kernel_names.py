"""The name of a kernel shows its precision and unit, and nothing that it does not prove.

The names are recorded ones of cuBLAS, cuDNN, CUTLASS, Eigen, TensorFlow and Tensile, cut where only shapes follow.
"""

from __future__ import annotations

import pytest

from traceview.trace.device.kernel_names import KernelName, NumberFormat, kernel_name

NAMES = {
    KernelName(NumberFormat.BF16, False, False): ("Cast_GPU_DT_FLOAT_DT_BFLOAT16_kernel",),
    KernelName(NumberFormat.BF16, True, True): (
        "sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n",
        "Cijk_Ailk_Bljk_BBS_BH_MT256x128x64_MI16x16x16x1_SN_1LDSB0",
        "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_TNN",
        "nvjet_sm100_tst_64x16_64x16_2x4_2cta_h_bz_splitK_TNT",
    ),
    KernelName(NumberFormat.FP16, False, False): (
        "void cudnn::bn_fw_tr_1C11_singleread<__half, 512, true, 1, 2, 0>(cudnnTensorStruct, __half const*, float)",
        "AddV2_GPU_DT_HALF_DT_HALF_kernel",
    ),
    KernelName(NumberFormat.FP16, False, True): ("volta_fp16_sgemm_fp16_128x64_nt",),
    KernelName(NumberFormat.FP16, True, True): (
        "void cutlass__5x_cudnn::Kernel<cutlass_tensorop_f16_s16816dgrad_optimized_f16_128x128_32x5_nhwc_unity_stride_align8>(x)",
        "ampere_h16816gemm_128x128_ldg8_stages_32x5_nn",
        "Cijk_Alik_Bljk_HHS_BH_MT128x128x32_MI32x32x8x1",
        "nvjet_hsh_64x16_64x16_2x4",
    ),
    KernelName(NumberFormat.FP32, False, False): (
        "void tensorflow::functor::ResizeNearestNeighborNHWC<float, tensorflow::functor::HalfPixelScalerForNN>(int)",
        "miopenSp3AsmConv_v21_1_3_gfx9_fp32_f2x3_stride1",
    ),
    KernelName(NumberFormat.FP32, False, True): (
        "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize32x32x8_stage3_warpsize1x2x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas",
        "volta_scudnn_128x64_relu_interior_nn_v1",
        "volta_gcgemm_32x32_nt",
        "volta_cgemm_32x32_tn",
        "void implicit_convolve_sgemm<float, float, 1024, 5, 5, 3, 3, 3, 1, false, false, true>(int, int, int, float const*, int)",
        "_Z23implicit_convolve_sgemmIffLi128ELi5ELi5ELi3ELi3ELi3ELi1ELb0ELb1ELb1EEviiiPKT_iPT0_S2_18kernel_conv_paramsyiffiPKS3_S7_bii",
        "void gemmSN_TN_kernel<float, 128, 16, 2, 4, 10, 11, false, cublasGemvTensorStridedBatched<float const>>(cublasGemmSmallNParams)",
        "Cijk_Ailk_Bljk_SB_MT64x64x16_SE_1LDSB0_APM1",
        "sgemm_128x64",
    ),
    KernelName(NumberFormat.FP64, False, False): ("Tanh_GPU_DT_DOUBLE_DT_DOUBLE_kernel",),
    KernelName(NumberFormat.FP64, False, True): ("volta_dgemm_64x64_nt",),
    KernelName(NumberFormat.FP64, True, True): (
        "sm90_xmma_gemm_f64f64_f64f64_f64_tn_n_tilesize64x128x16_stage3_warpsize4x2x1_tensor16x8x8_kernel",
        "cutlass_80_tensorop_d884gemm_64x64_16x4_nn_align1",
        "Cijk_Ailk_Bljk_DB_MT64x64x8_MI16x16x4x1",
    ),
    KernelName(NumberFormat.FP8, True, True): (
        "sm90_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n_tilesize128x128x128",
        "Cijk_Alik_Bljk_F8BS_BH_Bias_HA_S_SAV_UserArgs_MT64x64x512_MI16x16x1",
        "nvjet_qqtst_128x160_128x4_2x1_v_bz_TNT",
    ),
    KernelName(NumberFormat.INT8, True, True): (
        "sm80_xmma_fprop_implicit_gemm_interleaved_i8i8_i8i32_f32_nchw_vect_c_32kcrs_vect_c_32_nchw_vect_c_32_tilesize96x64x64",
        "Cijk_Alik_Bljk_4xi8BH_MT64x64x32_MI32x32x8",
    ),
    KernelName(NumberFormat.TF32, True, True): (
        "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128x16_stage4_warpsize2x2x1_g1_tensor16x8x8_execute_kernel__5x_cudnn",
        "cutlass_80_tensorop_s1688gemm_128x256_16x3_nn_align4",
        "Cijk_Ailk_Bljk_S_MX_B_MT64x64x16_MI16x16x8x1",
    ),
    KernelName(NumberFormat.UNKNOWN, False, False): (
        "fusion_123",
        "void cub::DeviceReduceKernel<cub::DeviceReducePolicy<int, int, int, cub::Sum>::Policy600, int*>(int*)",
        "CudaGraphExec:12",
    ),
    KernelName(NumberFormat.UNKNOWN, False, True): (
        "_ZN5cudnn3cnn17wgrad_alg0_engineIfLi128ELi5ELi5ELi3ELi3ELi3ELb0ELi512EEEviiiPKT_iPS2_S4_18kernel_grad_paramsyifiiii",
    ),
    KernelName(NumberFormat.UNKNOWN, True, True): ("nvjet_sss_128x160_128x4_2x1_v_bz_TNT",),
}
"""By precision, whether it runs on tensor cores, and whether it multiplies matrices."""


@pytest.mark.parametrize(("expected", "names"), NAMES.items())
def test_what_a_name_proves(expected: KernelName, names: tuple[str, ...]) -> None:
    for name in names:
        assert kernel_name(name.encode()) == expected, name


@pytest.mark.parametrize(
    "name",
    [
        b"",
        b"\xff\xfe\x00gem\x80m",
        b"a" * 100_000,
        b"f16" * 33_000,
        b"_" * 100_000,
        b"Cijk_" + b"Ab_" * 30_000,
        b"x" * 100_000 + b"<float>",
    ],
)
def test_a_hostile_name_proves_nothing(name: bytes) -> None:
    """That it takes no longer than its length `tests/test_patterns.py` proves."""
    found = kernel_name(name)
    assert not found.tensor_core
    assert found.precision in (NumberFormat.UNKNOWN, NumberFormat.FP16)
