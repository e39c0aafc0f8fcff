"""python -m scripts.sweep: which runs of a sweep have finished, run, failed or are missing, from disk alone."""
