"""`import prbench` gives the public names, and loads what is behind them when they are used."""

import subprocess
import sys

import pytest

import prbench


def test_every_public_name_is_there() -> None:
    for name in prbench.__all__:
        assert getattr(prbench, name).__name__ == name
    assert set(prbench.__all__) <= set(dir(prbench))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'prbench' has no attribute 'evalute'"):
        _ = prbench.evalute


def test_the_import_loads_nothing_else() -> None:
    code = (
        "import sys, prbench; loaded = {name.split('.')[0] for name in sys.modules}; "
        "print(len([name for name in sys.modules if name.startswith('prbench')]), loaded & {'numpy', 'pydantic'}); "
        "prbench.Example; print('prbench.evaluation' in sys.modules); prbench.evaluate"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["1 set()", "False"]
