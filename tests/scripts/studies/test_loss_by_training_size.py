"""The tables of kept runs by number of training images."""

from scripts.studies import loss_by_training_size
from tests.scripts.studies.test_table16 import KEPT, require_rows_of_the_pages


def test_the_tables_by_training_size_are_those_of_the_pages(capsys) -> None:
    assert loss_by_training_size.main(KEPT) == 0
    words = "LeNet, 48,976 images of 32 × 32", "published: test loss in bits after n images"
    require_rows_of_the_pages(capsys.readouterr().out, *words)
