"""Architectures. They know nothing of data or training."""
