"""Every module has a test that imports it, names it or is called after it."""

import re
from pathlib import Path

from tests.test_package_architecture import REPOSITORY, SOURCE, TEXTS, imports_of

# modules that no test imports, names or is called after: they are tested through the commands that use them
TESTED_THROUGH_OTHERS = {
    "erasure.moment_accumulator",
    "erasure.optional_packages",
    "hydra_plugins.erasure_mdl.sweeper",
}
NAMING_MODULES = ("tests/test_every_module_is_tested.py", "tests/test_package_architecture.py")
TESTS = {path: text for path, text in TEXTS.items() if path.startswith("tests/") and path not in NAMING_MODULES}


def test_every_module_has_a_test_that_imports_it_names_it_or_is_called_after_it() -> None:
    text = "\n".join([*TESTS.values(), (REPOSITORY / ".ci/run").read_text()])
    known = {name for test in TESTS.values() for name in imports_of(test)}
    called = {Path(path).stem for path in TESTS}
    words = set(re.findall(r"\w+(?:\.\w+)*", text))
    named = {".".join(word.split(".")[:end]) for word in words for end in range(1, word.count(".") + 2)}
    untested = set()
    for path in map(Path, SOURCE):
        module = ".".join(path.with_suffix("").parts)
        tested = module in known or f"test_{path.stem}" in called or module in named
        if not (tested or path.stem.startswith("__")):
            untested.add(module)
    assert untested == TESTED_THROUGH_OTHERS
