"""Prequential minimum description length: chunked training sizes, codelength, comparison of runs."""
