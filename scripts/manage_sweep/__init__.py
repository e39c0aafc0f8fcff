"""python -m scripts.manage_sweep: show a sweep's runs, launch unfinished ones, delete failed ones."""
