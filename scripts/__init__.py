"""Reports, benchmarks and helpers; each is `python -m scripts.NAME`, and explains itself with --help."""
