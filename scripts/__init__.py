"""Reports, benchmarks and helpers; each is `python -m scripts.NAME`, and explains itself with --help."""

import sys

from conf.command_process import interrupt_in_one_line, let_threads_sleep, require_streams

require_streams()
if sys.argv[0] == "-m":  # not where another program imports a script
    interrupt_in_one_line()
let_threads_sleep()
