"""What the user's words for a kube-proxy mean, and which of all that is offered is taken."""

from collections.abc import Callable
from pathlib import Path

import pytest
from kube_proxies import BundleStore, program

from proxylab.binaries.binary import order
from proxylab.binaries.cache import Cache
from proxylab.binaries.choose import Sources, UnobtainableError, newest, obtain, read_gates, upstream_for
from proxylab.engines.engine_names import read_engine
from proxylab.errors import CapabilityError

Make = Callable[..., Sources]


@pytest.fixture
def sources(tmp_path: Path) -> Make:
    return lambda **shelves: Sources(Cache(tmp_path / "cache"), shelves)


def quiet(_line: str) -> None:
    pass


def wanted(version: str) -> str:
    return f"kube-proxy{version and '@'}{version}/nftables"


@pytest.mark.parametrize(
    ("version", "found"), [("", "v1.36.1"), ("v1.34", "v1.34.10"), ("v1.34.2", "v1.34.2"), ("v1.33.7", "v1.33.7")]
)
def test_the_newest_that_fits_is_taken(sources: Make, version: str, found: str) -> None:
    bundle_store = BundleStore(("v1.33.7", "v1.34.2", "v1.34.9", "v1.34.10", "v1.36.1"))
    assert obtain(read_engine(wanted(version)), "", sources(module=bundle_store), quiet).version == found
    assert bundle_store.asked == [found]


def test_what_is_cached_is_not_obtained_again(sources: Make) -> None:
    bundle_store = BundleStore(("v1.34.2", "v1.36.1"))
    known = sources(module=bundle_store)
    for _ in range(2):
        assert obtain(read_engine(wanted("v1.34")), "", known, quiet).version == "v1.34.2"
    assert bundle_store.asked == ["v1.34.2"]
    # Without a version the cache is enough, too: who wants the newest of all asks for it.
    assert obtain(read_engine(wanted("")), "", known, quiet).version == "v1.34.2"
    assert newest("", known, quiet).version == "v1.36.1"


@pytest.mark.parametrize(
    ("name", "where"),
    [("kube-proxy@v1.38.0-beta.0/nftables", ""), ("kube-proxy/nftables", "module:v1.38.0-beta.0")],
)
def test_a_prerelease_runs_only_where_its_whole_name_is_wanted(sources: Make, name: str, where: str) -> None:
    module = BundleStore(("v1.37.2",), unlisted=("v1.38.0-beta.0",))
    known = sources(module=module)
    for _ in range(2):
        assert obtain(read_engine(name), where, known, quiet).version == "v1.38.0-beta.0"
    assert module.asked == ["v1.38.0-beta.0"]
    assert obtain(read_engine(wanted("")), "", known, quiet).version == "v1.37.2"
    with pytest.raises(CapabilityError):
        obtain(read_engine(wanted("v1.38")), "", known, quiet)


def test_a_named_source_is_asked_though_another_one_has_given_that_version(sources: Make) -> None:
    release = BundleStore(("v1.34.2",))
    known = sources(release=release)
    keep(known.cache.part("images"), "v1.34.2", "image example.org/patched")
    for _ in range(2):
        binary = obtain(read_engine(wanted("")), "release:v1.34.2", known, quiet)
        assert binary.origin == release.origin("v1.34.2")
    assert release.asked == ["v1.34.2"]


@pytest.mark.parametrize("version", ["v1.34.2", "v1.34.10", "v1.34.2-dirty"])
@pytest.mark.parametrize("name", ["kube-proxy/nftables", "kube-proxy@v1.34/nftables", "kube-proxy@v1.34.2/nftables"])
def test_what_a_user_built_stands_for_no_version_and_not_for_the_default(
    sources: Make, name: str, version: str
) -> None:
    """Wherever it lies: in a part of the cache, or, as an earlier proxylab left it, among the versions."""
    release = BundleStore(("v1.34.2",))
    known = sources(release=release)
    keep(known.cache.part("checkouts/0123456"), version, "built in /home/me/kubernetes")
    keep(known.cache, version, "built in /home/me/kubernetes")
    keep(known.cache, version, "/usr/local/bin/kube-proxy of image registry.k8s.io/kube-proxy:v1.34.2")
    assert obtain(read_engine(name), "", known, quiet).origin == release.origin("v1.34.2")
    assert release.asked == ["v1.34.2"]


def keep(cache: Cache, version: str, origin: str) -> None:
    with cache.workspace(origin) as folder:
        cache.keep(program(folder / "kube-proxy", version, f"# {origin}"), origin)


def test_of_all_sources_the_newest_version_wins_and_the_next_one_stands_in(sources: Make) -> None:
    release, module = BundleStore(("v1.36.3",), fails="it is torn"), BundleStore(("v1.35.4", "v1.36.1"))
    assert newest("", sources(release=release, module=module), quiet).version == "v1.36.1"
    assert (release.asked, module.asked) == (["v1.36.3"], ["v1.36.1"])


def test_where_the_newest_patch_cannot_be_had_the_one_before_it_is(sources: Make) -> None:
    module = BundleStore(("v1.31.9", "v1.32.1", "v1.32.3", "v1.32.12", "v1.32.13"), torn=("v1.32.12", "v1.32.13"))
    known = sources(module=module)
    assert newest("v1.32", known, quiet).version == "v1.32.3"
    assert module.asked == ["v1.32.13", "v1.32.12", "v1.32.3"]
    # It is looked for again, in case it has come; what is in the cache saves the rest of the way.
    assert newest("v1.32", known, quiet).version == "v1.32.3"
    assert module.asked[3:] == ["v1.32.13"]


def test_no_other_minor_stands_in_for_the_newest(sources: Make) -> None:
    known = sources(module=BundleStore(("v1.35.1",)))
    newest("", known, quiet)
    torn = Sources(known.cache, {"module": BundleStore(("v1.36.0", "v1.36.1"), fails="it is torn")})
    with pytest.raises(UnobtainableError, match=r"module: it is torn; module: it is torn"):
        newest("", torn, quiet)


def test_a_version_that_is_not_listed_is_asked_for_by_name(sources: Make) -> None:
    module = BundleStore(("v1.36.3",))
    with pytest.raises(UnobtainableError, match=r"kube-proxy v1\.36\.2 .*no v1\.36\.2"):
        obtain(read_engine(wanted("v1.36.2")), "", sources(module=module), quiet)
    assert module.asked == ["v1.36.2"]


def test_offers_say_which_sources_did_not_answer(sources: Make) -> None:
    with pytest.raises(UnobtainableError) as caught:
        newest("", sources(release=BundleStore(silent="no network"), module=BundleStore(silent="no Go")), quiet)
    assert not caught.value.answered
    assert "release: no network; module: no Go" in caught.value.missing
    assert "--kube-proxy" in caught.value.cure
    with pytest.raises(UnobtainableError) as caught:
        newest(
            "",
            sources(release=BundleStore(silent="no network"), module=BundleStore(("v1.36.3",), fails="broken")),
            quiet,
        )
    assert caught.value.answered


def test_a_file_is_what_it_says_it_is(sources: Make, tmp_path: Path) -> None:
    file = program(tmp_path / "mine", "v1.37.0-alpha.1+abc")
    upstream = upstream_for(wanted(""), str(file), quiet, sources=sources())
    assert upstream is not None
    assert (upstream.binary, upstream.version) == (str(file), "v1.37.0-alpha.1+abc")
    with pytest.raises(CapabilityError, match=r"kube-proxy v1\.34: .* has v1\.37\.0"):
        upstream_for(wanted("v1.34"), str(file), quiet, sources=sources())


@pytest.mark.parametrize(
    ("content", "words"),
    [("#!/bin/sh\necho hello\n", "prints: hello"), ("", "prints: "), ("#!/no/such/interpreter\n", "No such file")],
)
def test_a_file_that_is_no_kube_proxy(sources: Make, tmp_path: Path, content: str, words: str) -> None:
    file = tmp_path / "mine"
    file.write_text(content)
    file.chmod(0o755)
    with pytest.raises(CapabilityError, match=words):
        obtain(read_engine(wanted("")), str(file), sources(), quiet)


def test_words_that_name_nothing(sources: Make, tmp_path: Path) -> None:
    with pytest.raises(CapabilityError, match="does not exist"):
        obtain(read_engine(wanted("")), str(tmp_path / "none"), sources(), quiet)
    with pytest.raises(CapabilityError, match="not a checkout of kubernetes"):
        obtain(read_engine(wanted("")), str(tmp_path), sources(), quiet)


def test_a_source_can_be_named(sources: Make) -> None:
    release, module = BundleStore(("v1.36.3",)), BundleStore(("v1.35.4", "v1.36.1"))
    known = sources(release=release, module=module)
    assert obtain(read_engine(wanted("")), "module:v1.35", known, quiet).version == "v1.35.4"
    assert obtain(read_engine(wanted("")), "module:", known, quiet).version == "v1.36.1"
    assert release.asked == []


def test_the_embedded_engine_needs_no_binary(sources: Make) -> None:
    assert upstream_for("embedded/iptables", "", quiet, sources=sources()) is None


def test_feature_gates() -> None:
    assert read_gates("") == {}
    assert read_gates("A=true, B=False") == {"A": True, "B": False}
    for text in ("A", "A=1", "=true"):
        with pytest.raises(ValueError, match="not a feature gate"):
            read_gates(text)


def test_versions_are_ordered_as_numbers_and_a_prerelease_comes_before_its_release() -> None:
    versions = ["v1.9.0", "v1.34.2", "v1.34.10", "v1.36.0-alpha.1", "v1.36.0", "v1.36.0-dirty"]
    assert sorted(frozenset(versions[:5]), key=order) == versions[:5]


def test_a_mode_that_was_removed_is_taken_from_the_versions_that_had_it(sources: Make) -> None:
    module = BundleStore(("v1.24.17", "v1.25.16", "v1.36.1"))
    known = sources(module=module)
    for version in ("v1.36.1", "v1.24.17"):
        obtain(read_engine(f"kube-proxy@{version}/iptables"), "", known, quiet)
    # What is cached is enough, though a source has a newer one.
    assert obtain(read_engine("kube-proxy/userspace"), "", known, quiet).version == "v1.24.17"
    assert obtain(read_engine("kube-proxy@v1.25/userspace"), "", known, quiet).version == "v1.25.16"
    with pytest.raises(CapabilityError, match=r"mode userspace in kube-proxy v1\.36\.1"):
        obtain(read_engine("kube-proxy@v1.36.1/userspace"), "", known, quiet)


@pytest.mark.parametrize("named", ["", "mine"])
def test_a_mode_that_came_later_is_refused(sources: Make, tmp_path: Path, named: str) -> None:
    where = str(program(tmp_path / "mine", "v1.28.15")) if named else ""
    with pytest.raises(CapabilityError, match=r"mode nftables in kube-proxy v1\.28.*; name a version from v1\.29 on"):
        obtain(read_engine("kube-proxy@v1.28/nftables"), where, sources(module=BundleStore(("v1.28.15",))), quiet)


def test_without_one_in_the_cache_the_last_minor_with_the_mode_is_obtained(sources: Make) -> None:
    module = BundleStore(("v1.24.17", "v1.25.16", "v1.36.1"))
    assert obtain(read_engine("kube-proxy/userspace"), "", sources(module=module), quiet).version == "v1.25.16"
