"""mHC's fused post and pre step for few tokens, its weight read as bf16 where bf16 holds it exactly.
kernel.py holds the kernel, launch.py the launcher and the probe; hook.py is the only file that knows vLLM.
"""
