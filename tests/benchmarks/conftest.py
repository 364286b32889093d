import pytest

SMALL = (10, 100)
EVERY = (10, 100, 1000, 5000)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--full-size",
        action="store_true",
        help=f"measure at {', '.join(map(str, EVERY))} services, which takes minutes",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "services" in metafunc.fixturenames:
        full = metafunc.config.getoption("--full-size", default=False)
        metafunc.parametrize("services", EVERY if full else SMALL)
