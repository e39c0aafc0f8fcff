"""python -m scripts.sweep: state of the runs of a sweep, read from disk."""
