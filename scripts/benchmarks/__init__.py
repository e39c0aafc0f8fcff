"""Benchmarks of our code against alternatives, in one process; each prints ratios."""
