"""Reports, benchmarks and helpers; each is `python -m scripts.NAME`, and explains itself with --help."""

from conf.command_process import require_current_folder

require_current_folder()
