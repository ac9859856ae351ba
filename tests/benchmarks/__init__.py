"""Benchmarks against peers or physical limits, as ratios in one run: `make bench`."""
