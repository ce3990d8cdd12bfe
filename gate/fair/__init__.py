"""Is it fair: what one user's long work does to the others."""
