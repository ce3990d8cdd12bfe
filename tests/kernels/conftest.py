"""One thread for torch: the suite's tensors are tiny, and CI has two cores."""

import torch

torch.set_num_threads(1)
