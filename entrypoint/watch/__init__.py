"""Is the engine alive? counters.py reads what vLLM and the kernel count; wedge.py judges it, pure; limits.py says how
often a box may try again; alarm.py collects evidence on every box before a generation is ended; memory.py waits until
a stopped engine's memory is back.
"""
