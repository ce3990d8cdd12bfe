"""A whole cluster on one machine: boxes with their own addresses running real vLLM on CPU.
Cluster logic knows nothing of the lab; the lab only starts, stops and hurts boxes.
"""
