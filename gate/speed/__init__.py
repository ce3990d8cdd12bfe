"""Is it fast: rates with their spread, split into drafting luck and step time, and a paired comparison of two runs."""
