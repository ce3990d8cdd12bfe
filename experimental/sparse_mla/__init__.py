"""Gathered sparse attention for NoPE MLA: prefill one program a token, decode split over the rows.
kernel.py holds the kernels, launcher and plain reference; hook.py is the only file that knows vLLM.
"""
