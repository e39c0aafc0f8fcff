"""Reports, benchmarks and helpers; each is `python -m scripts.NAME`, and explains itself with --help."""

from conf.errors import require_current_folder

require_current_folder()
