"""Faults of kernels in Triton and their right twins. They need the extra `triton`; without a GPU they run under Triton's interpreter."""
