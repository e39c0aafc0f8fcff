"""Architectures, independent of data and training."""
