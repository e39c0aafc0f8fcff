"""Tables as CSV and Markdown."""

import math
import re

import pytest
from markdown_it import MarkdownIt

from harness.results.columns import spread
from harness.results.table import Table, csv_of, file_name, tex


def test_csv_has_the_columns_of_all_records() -> None:
    """The first record's columns were taken for everybody's: another's gave a ValueError, none an IndexError."""
    assert csv_of([{"a": 1}, {"a": 2, "b": 3}, {}]) == "a,b\n1,\n2,3\n,\n"
    assert csv_of([]) == csv_of([{}]) == ""


def test_markdown_shows_html_as_it_is_written() -> None:
    table = Table("", "", ["a|b", "c"], [["<script>alert(1)</script>", "d\ne & < 0.1"]])
    assert table.markdown().splitlines()[0] == "| a∣b | c |"
    assert table.markdown().splitlines()[2] == "| &lt;script&gt;alert(1)&lt;/script&gt; | d e &amp; &lt; 0.1 |"


def test_csv_holds_no_formula_and_no_control_characters() -> None:
    records = [
        {"eraser": '=HYPERLINK("http://x")', "+a": -1.5},
        {"eraser": "@SUM(A1)", "+a": 2},
        {"eraser": "a\x1b[2J"},
    ]
    assert csv_of(records) == 'eraser,\'+a\n"\'=HYPERLINK(""http://x"")",-1.5\n\'@SUM(A1),2\na [2J,\n'


def test_markdown_makes_no_link_of_a_name() -> None:
    row = ["[a](http://x.org)", "![](https://x.org/a.png)", "www.x.org", "\\[a](b)", "<http://x.org>", "seeds=[0]"]
    shown = Table("", "", ["a"] * 6, [row]).markdown().splitlines()[2]
    parsed = MarkdownIt("gfm-like", {"linkify": False}).parseInline(shown.strip("| "))[0].children or []
    assert {token.type for token in parsed} == {"text"}
    text = "".join(token.content for token in parsed)
    assert text.replace("\u200b", "") == " | ".join(row)
    assert not re.search(r"https?://|www\.", text)  # what GitHub and W&B look for


def test_the_terminal_shows_names_as_they_are(capsys) -> None:
    Table("", ["of [/red]"], ["[bold]h"], [["[/red]\x1b[2J"]], title="[x]").show()
    shown = capsys.readouterr().out
    for words in ("[x]", "[bold]h", "[/red] [2J", "of [/red]"):
        assert words in shown
    assert "\x1b" not in shown


def test_a_percentage_is_rounded_as_it_reads() -> None:
    """100 times 0.5445 is 54.449999999999996."""
    accuracy = spread("accuracy (%)", "accuracy", ".1f", scale=100)
    assert accuracy.text({"accuracy": [0.5445]}) == "54.5"
    assert accuracy.text({"accuracy": [0.5, None, math.nan, 0.6]}) == "55.0 ± 7.1"
    assert accuracy.text({"accuracy": []}) == ""


def test_names_of_files_are_ascii_and_distinct_where_letters_are_left_out() -> None:
    assert file_name("cost of erasure · ± 0.5, digits") == "cost-of-erasure-0.5-digits"  # signs may be left out
    first, second = file_name("größe"), file_name("grüße")
    assert first != second
    assert first.isascii()


def test_latex_is_escaped() -> None:
    assert tex("alf_qleace 5 % & Δ ± {x}") == r"alf\_qleace 5 \% \& $\Delta$ $\pm$ \{x\}"
    assert tex("p ≤ 0.05, > 360, a|b") == r"p $\leq$ 0.05, $>$ 360, a$|$b"  # pdfLaTeX knows no ≤, and prints ¿ for >


@pytest.mark.parametrize(("rows", "environment"), [(3, "tabular"), (40, "longtable")])
def test_groups_and_environments_of_latex_end_where_they_should(rows: int, environment: str) -> None:
    """A table that may be shrunk is one argument of \\resizebox; one that breaks over pages is not shrunk."""
    table = Table("some", ["All {runs}."], ["eraser", "bits"], [["leace", "1.0 ± 0.1"]] * rows, title="Bits")
    open_groups = []
    for token in re.findall(r"\\begin\{\w+\}|\\end\{\w+\}|\\[{}]|[{}]", table.latex()):
        if token.startswith(r"\begin"):
            open_groups.append(token.removeprefix(r"\begin"))
        elif token == "{":
            open_groups.append(token)
        elif token == "}":
            assert open_groups.pop() == "{"
        elif token.startswith(r"\end"):
            assert open_groups.pop() == token.removeprefix(r"\end")
    assert not open_groups
    assert f"\\begin{{{environment}}}" in table.latex()
    shrunk = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%" + "\n" + r"\begin{tabular}"
    assert (shrunk in table.latex()) is (environment == "tabular")
    assert ("\\end{tabular}}\n" in table.latex()) is (environment == "tabular")
