"""Deterministic, sorted top-k over indexer pools: the same ids in the same order on every call.
kernel.py refines what vLLM's own top-k kernels propose; hook.py is the only file that knows vLLM.
"""
