"""python -m scripts.report: finished runs -> tables, figures, one page."""
