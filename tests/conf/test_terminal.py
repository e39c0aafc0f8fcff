"""Other people's words on the terminal."""

import logging
import subprocess
import sys

from conf.terminal import PrintableFormatter, printable


def test_words_of_others_do_not_steer_the_terminal() -> None:
    assert printable("a\x1b[2J\nb\udcff ±") == "a [2J b  ±"
    assert printable("a\x1b[2J\nb\r\u202ec", lines=True) == "a [2J\nb  c"


def test_records_of_a_log_do_not_either() -> None:
    record = logging.LogRecord("name", logging.INFO, "", 0, "class %s", ("\x1b]0;title\x07",), None)
    assert PrintableFormatter("%(levelname)s: %(message)s").format(record) == "INFO: class  ]0;title "


def test_what_the_runs_of_a_sweep_have_in_common_is_shown_once() -> None:
    runs = "import logging; from conf.terminal import show_log; show_log(logging.INFO); log = logging.getLogger('x')\n"
    runs += "for n in (7, 7, 8): log.warning('few examples: %d', n)"
    shown = subprocess.run([sys.executable, "-c", runs], capture_output=True, text=True, check=True).stderr
    assert shown == "few examples: 7\nfew examples: 8\n"
