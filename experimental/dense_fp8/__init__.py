"""FP8 for the bf16 linear layers an NVFP4 checkpoint leaves: weights per output channel, activations per token.
Triton kernels for up to 64 tokens, vLLM's own scaled product beyond; layers chosen by name after loading.
"""
