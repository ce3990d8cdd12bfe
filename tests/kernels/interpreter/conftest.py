"""Triton's interpreter must be chosen before Triton is imported."""

import os

os.environ["TRITON_INTERPRET"] = "1"
