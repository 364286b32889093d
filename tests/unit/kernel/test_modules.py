"""The doctor advises to load a module only where that can help."""

from proxylab.kernel.modules import feasible, load_modules

CURE = "install ipset, and " + load_modules("ip_set xt_set")


def test_the_advice_stands_where_the_kernel_has_a_module_or_nothing_is_known() -> None:
    assert CURE == "install ipset, and load the kernel's module as root: 'modprobe -a ip_set xt_set'"
    assert feasible(CURE, {"xt_set"}) == CURE
    assert feasible(CURE, None) == CURE


def test_a_kernel_without_the_modules_is_to_be_replaced() -> None:
    assert feasible(CURE, {"sctp"}).startswith("install ipset, and use a kernel that has it")
    assert feasible(CURE, frozenset()).endswith("('--kernel uml' runs labs on another one)")


def test_advice_that_loads_nothing_stands() -> None:
    assert feasible("boot without ipv6.disable=1", frozenset()) == "boot without ipv6.disable=1"
