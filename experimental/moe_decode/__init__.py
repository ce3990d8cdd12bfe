"""NVFP4 experts with 16-bit activations for few tokens, on the tensors the CUTLASS backend keeps.
Two Triton kernels: gate, up and SwiGLU for each touched expert once, then down, summed by ascending expert.
"""
