"""Tests as lines that tests/runner.c counts.

    @test                        # a function of no arguments; its name is the test's
    def sums_are_sums(): ...
    tap.main()                   # runs them, or those whose names hold a word of the command line

A test fails by an exception; `raise tap.Skip("why")` leaves it out.
"""
import sys
import traceback

_tests = []


class Skip(Exception):
    pass


def test(function):
    _tests.append(function)
    return function


def raises(kind, words, call, *args, **options):
    """The exception, which must be of that very class and hold the words."""
    try:
        result = call(*args, **options)
    except Exception as caught:
        if type(caught) is not kind or words not in str(caught):
            raise AssertionError(f"{type(caught).__name__}: {caught}; expected {kind.__name__} with '{words}'") from caught
        return caught
    raise AssertionError(f"no exception but {result!r}; expected {kind.__name__} with '{words}'")


def main():
    failed = number = 0
    chosen = [t for t in _tests if not sys.argv[1:] or any(word in t.__name__ for word in sys.argv[1:])]
    for function in chosen:
        number += 1
        name = function.__name__.replace("_", " ")
        try:
            function()
            print(f"ok {number} - {name}")
        except Skip as why:
            print(f"ok {number} - {name} # SKIP {why}")
        except BaseException:
            failed += 1
            print("".join("# " + line for line in traceback.format_exc().splitlines(True)), end="")
            print(f"not ok {number} - {name}")
        sys.stdout.flush()
    print(f"1..{number}")
    sys.exit(failed > 0)
