"""Weight-only NVFP4 for chosen linear layers: a Triton kernel for few tokens beside dense_fp8's copy for many.
Chosen by a pattern on layer names; quantised from bf16 at load, round to nearest.
"""
