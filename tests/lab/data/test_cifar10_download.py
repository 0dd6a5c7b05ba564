"""Download of the archive from a local server that fails in all usual ways."""

from __future__ import annotations

import hashlib

import pytest

from orthograd.lab.data import cifar10
from orthograd.lab.data.download import Source, UnavailableError, download
from tests.lab.data import small_cifar10 as small
from tests.lab.data.web_server import serving

CONTENT = bytes(range(256)) * 4000
MD5 = hashlib.md5(CONTENT).hexdigest()


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")


def source(server, **changes):
    return Source(server.url, MD5, **{"pause": 0.001, "timeout": 30.0} | changes)


def test_the_archive_is_downloaded_verified_decoded_and_removed(tmp_path):
    steps = []
    with serving(small.ARCHIVE) as server:
        cifar10.fetch(tmp_path, source="official", data=small.served(server.url), report=steps.append)
    cifar10.verify(tmp_path, data=small.SMALL)
    downloads = [step for step in steps if step.unit == "bytes"]
    assert downloads[-1].done == downloads[-1].total == len(small.ARCHIVE)
    assert server.asked == [None]
    assert len(list((tmp_path / "cifar10").iterdir())) == 5


def test_a_broken_download_goes_on_where_it_broke(tmp_path):
    with serving(CONTENT, drops_after=[300_000, 1, 200_000]) as server:
        download(source(server), tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert server.asked == [None, 300_000, 300_001, 500_001]
    assert server.sent == len(CONTENT)
    assert not (tmp_path / "file.part").exists()


def test_a_download_that_was_given_up_goes_on_later(tmp_path):
    with serving(CONTENT, drops_after=[400_000, 0]) as server:
        with pytest.raises(UnavailableError, match="the connection ended after 400000 of 1024000 bytes"):
            download(source(server, attempts=1), tmp_path / "file")
        assert (tmp_path / "file.part").stat().st_size == 400_000
        download(source(server), tmp_path / "file")
    assert server.asked == [None, 400_000, 400_000]
    assert server.sent == len(CONTENT)


def test_a_server_without_ranges_is_asked_for_all_of_it_again(tmp_path):
    with serving(CONTENT, knows_ranges=False, drops_after=[300_000]) as server:
        download(source(server), tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert server.asked == [None, 300_000]
    assert server.sent == 300_000 + len(CONTENT)


def test_a_server_that_tells_no_length_is_checked_by_its_checksum(tmp_path):
    with serving(CONTENT, tells_length=False) as server:
        download(source(server), tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT
    with (
        serving(CONTENT, tells_length=False, drops_after=[1000]) as server,
        pytest.raises(UnavailableError, match="MD5"),
    ):
        download(source(server), tmp_path / "other")


def test_what_was_begun_from_another_file_is_brought_anew(tmp_path):
    (tmp_path / "file.part").write_bytes(b"another file")
    with serving(CONTENT) as server:
        download(source(server), tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert server.asked == [12, None]


@pytest.mark.parametrize(("extra", "asked"), [(b"", [len(CONTENT)]), (b"more", [len(CONTENT) + 4, None])])
def test_a_part_that_is_whole_or_longer_than_the_file_is_checked_by_its_checksum(tmp_path, extra, asked):
    (tmp_path / "file.part").write_bytes(CONTENT + extra)
    with serving(CONTENT) as server:
        download(source(server), tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert server.asked == asked


def test_a_file_that_is_here_is_not_downloaded_and_a_wrong_one_is(tmp_path):
    (tmp_path / "file").write_bytes(CONTENT)
    with serving(CONTENT) as server:
        download(source(server), tmp_path / "file")
        assert server.asked == []
        (tmp_path / "file").write_bytes(CONTENT[1:])
        download(source(server), tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_wrong_bytes_are_refused_and_not_kept(tmp_path):
    with serving(CONTENT[:-1] + b"x") as server, pytest.raises(UnavailableError, match=f"the MD5 {MD5}, got"):
        download(source(server), tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_there_is_said_at_once(tmp_path):
    with (
        serving(CONTENT, status=[404]) as server,
        pytest.raises(UnavailableError, match=r"tar\.gz: HTTP 404 Not Found"),
    ):
        download(source(server), tmp_path / "file")
    assert server.asked == [None]


def test_a_server_that_is_busy_is_asked_again_but_not_forever(tmp_path):
    with serving(CONTENT, status=[503, 429]) as server:
        download(source(server), tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT
    news = []
    with serving(CONTENT, status=[503] * 9) as server, pytest.raises(UnavailableError, match="HTTP 503"):
        download(source(server, attempts=3), tmp_path / "other", report=news.append)
    assert len(server.asked) == 3
    assert [step.words for step in news] == ["cifar-10-binary.tar.gz: HTTP 503 Service Unavailable; trying again"] * 2


@pytest.mark.parametrize("tells_length", [True, False])
def test_a_file_that_is_far_too_large_is_not_taken(tmp_path, tells_length):
    with (
        serving(CONTENT, tells_length=tells_length) as server,
        pytest.raises(UnavailableError, match=r"up to 300000|at most 300000"),
    ):
        download(source(server, largest=300_000), tmp_path / "file")
    assert (tmp_path / "file.part").stat().st_size <= 300_000


def test_nobody_there_is_said_after_the_attempts(tmp_path):
    with pytest.raises(UnavailableError, match="Connection refused"):
        download(small.UNREACHABLE, tmp_path / "file")


def test_a_part_that_cannot_be_written_is_named_as_such(tmp_path):
    (tmp_path / "file.part").mkdir()
    with (
        serving(CONTENT) as server,
        pytest.raises(OSError, match=r"file\.part: cannot be written: Is a directory") as caught,
    ):
        download(source(server), tmp_path / "file")
    assert not isinstance(caught.value, UnavailableError)
