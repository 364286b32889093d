"""The files and flags of the real control plane, and kubeconfigs."""

import json
from ipaddress import ip_network

import pytest

from proxylab.control.kubernetes.settings import AUTHORITY, SETTINGS, kubeconfig, settings_files


def test_each_file_that_a_flag_names_is_written_or_made_by_the_program() -> None:
    files = settings_files("s3cret", [ip_network("10.96.0.0/16")])
    settings = json.loads(files[SETTINGS])
    made = {f"{settings['folder']}/{name}" for name in ("server.crt", "server.key", "accounts.key", "authority.crt")}
    flags = [*settings["apiServer"], *settings["controllerManager"]]
    paths = {path for flag in flags if (path := flag.partition("=")[2]).startswith("/run/")}
    assert paths - made - {settings["folder"]} == {*files} - {SETTINGS}
    assert AUTHORITY in made


def test_the_token_is_that_of_an_administrator_in_both_files() -> None:
    files = settings_files("s3cret", [ip_network("10.96.0.0/16")])
    (tokens,) = (text for path, text in files.items() if path.endswith("/tokens"))
    assert tokens == 's3cret,admin,admin,"system:masters"\n'
    (own,) = (json.loads(text) for path, text in files.items() if path.endswith("/kubeconfig"))
    assert own["users"][0]["user"] == {"token": "s3cret"}


@pytest.mark.parametrize(("first", "address"), [("10.96.0.0/16", "127.0.0.1"), ("fd00:96::/112", "::1")])
def test_the_server_has_the_family_of_the_first_service_network(first: str, address: str) -> None:
    networks = [ip_network(first), ip_network("fd00:97::/112" if "." in first else "10.97.0.0/16")]
    flags = json.loads(settings_files("t", networks)[SETTINGS])["apiServer"]
    assert f"--advertise-address={address}" in flags
    assert f"--service-cluster-ip-range={networks[0]},{networks[1]}" in flags


def test_a_kubeconfig_has_one_context() -> None:
    found = kubeconfig("shop", "https://127.0.0.1:4321", "t", {"certificate-authority-data": "Zm9v"})
    assert found["current-context"] == "shop"
    assert found["contexts"] == [{"name": "shop", "context": {"cluster": "shop", "user": "shop"}}]
    assert found["clusters"][0]["cluster"] == {
        "server": "https://127.0.0.1:4321",
        "certificate-authority-data": "Zm9v",
    }
