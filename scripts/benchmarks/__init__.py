"""Ours beside the alternative, in one process; each prints its ratios."""
