"""Reports, benchmarks and helpers; each is `python -m scripts.NAME`, and explains itself with --help."""

from conf.command_process import let_threads_sleep, require_current_folder

require_current_folder()
let_threads_sleep()
