"""Active network probes between boxes: the only room besides kernels that imports torch.
Short-lived: gone before the engine starts.
"""
