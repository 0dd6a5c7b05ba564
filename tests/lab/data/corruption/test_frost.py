"""Photographs of frost: where they are searched, and how they are fetched."""

from __future__ import annotations

import hashlib
import importlib.metadata
import io
import tarfile
import zipfile

import pytest
import torch

from orthograd.lab.data.corruption import corrupt, fetch_frost, frost_textures
from orthograd.lab.data.corruption import frost as photographs


@pytest.fixture
def nowhere(tmp_path, monkeypatch):
    """An empty data folder, and no package with the photographs."""

    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setenv("ORTHOGRAD_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(importlib.metadata, "distribution", missing)
    return tmp_path


@pytest.fixture
def archive(nowhere, monkeypatch):
    """A wheel with other contents, and with paths that would leave the folder."""
    for name in photographs.FROST_SHA256:
        monkeypatch.setitem(photographs.FROST_SHA256, name, hashlib.sha256(name.encode()).hexdigest())
    members = {f"imagecorruptions/frost/{name}": name.encode() for name in photographs.FROST_SHA256}
    members |= {"../frost/frost1.png": b"bad", "imagecorruptions/frost/frost6.jpg": b"unused", "evil.py": b"bad"}
    return members


def as_wheel(path, members):
    with zipfile.ZipFile(path, "w") as wheel:
        for name, content in members.items():
            wheel.writestr(name, content)


def as_source(path, members):
    with tarfile.open(path, "w:gz") as source:
        for name, content in members.items():
            entry = tarfile.TarInfo(f"imagecorruptions-1.0/{name}")
            entry.size = len(content)
            source.addfile(entry, io.BytesIO(content))


def test_without_photographs_the_error_says_how_to_get_them(nowhere):
    with pytest.raises(FileNotFoundError, match=r"orthograd data frost.*fetch_frost"):
        corrupt(torch.zeros(1, 3, 32, 32, dtype=torch.uint8), "frost", severity=1)


@pytest.mark.parametrize(("name", "write"), [("x-1.0.whl", as_wheel), ("x-1.0.tar.gz", as_source)])
def test_exactly_the_photographs_are_taken_out(name, write, archive, nowhere, monkeypatch):
    def download(folder):
        write(folder / name, archive)
        return folder / name

    monkeypatch.setattr(photographs, "_downloaded", download)
    folder = fetch_frost()
    assert folder == nowhere / "data" / "frost"
    assert sorted(path.name for path in folder.iterdir()) == sorted(photographs.FROST_SHA256)
    assert [path for path in nowhere.rglob("*") if path.is_file() and path.parent != folder] == []
    (folder / "frost2.png").write_bytes(b"cut off")
    fetch_frost()
    assert (folder / "frost2.png").read_bytes() == b"frost2.png"
    monkeypatch.setattr(photographs, "_downloaded", None)
    assert fetch_frost() == folder  # nothing is missing: no fetch


def test_other_photographs_are_refused(archive, nowhere, monkeypatch):
    archive["imagecorruptions/frost/frost4.jpg"] = b"another"

    def download(folder):
        as_wheel(folder / "x.whl", archive)
        return folder / "x.whl"

    monkeypatch.setattr(photographs, "_downloaded", download)
    with pytest.raises(ValueError, match=r"expected .*frost4.jpg.* in x.whl, got frost1.png"):
        fetch_frost(nowhere / "mine")
    assert not (nowhere / "mine").exists()


def test_a_failing_pip_is_quoted(nowhere, monkeypatch):
    monkeypatch.setattr(photographs, "PACKAGE", "no-such-package-as-this --index-url nothing")
    with pytest.raises(RuntimeError, match="expected pip to download no-such-package"):
        fetch_frost()


def test_photographs_of_an_installed_package_are_used_without_importing_it(frost, tmp_path, monkeypatch):
    folder = tmp_path / "site" / "imagecorruptions"
    information = tmp_path / "site" / "imagecorruptions-1.1.2.dist-info"
    information.mkdir(parents=True)
    information.joinpath("METADATA").write_text("Metadata-Version: 2.1\nName: imagecorruptions\nVersion: 1.1.2\n")
    (folder / "frost").mkdir(parents=True)
    (folder / "__init__.py").write_text("raise ImportError")
    for path in photographs._paths_in_data_folder():
        (folder / "frost" / path.name).write_bytes(path.read_bytes())
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setenv("ORTHOGRAD_DATA", str(tmp_path / "empty"))
    assert all(torch.equal(a, b) for a, b in zip(frost_textures(), frost, strict=True))
    (folder / "frost" / "frost1.png").write_bytes(b"another")
    photographs._decoded.cache_clear()
    with pytest.raises(ValueError, match=r"SHA-256 ff9f.*got another in .*frost1.png"):
        frost_textures()


def test_photographs_have_the_known_sizes_and_cover_images_of_many(frost):
    assert [tuple(texture.shape[1:]) for texture in frost] == [
        (600, 900),
        (315, 560),
        (315, 560),
        (350, 527),
        (495, 660),
    ]
    canvas, sides = photographs.frost_canvas(32, 32)
    assert sides.tolist() == [[120, 180], [63, 112], [63, 112], [70, 105], [99, 132]]  # as in a resize by 0.2
    assert torch.equal(canvas[3, :, :70, :105], frost[3][:, 2::5, 2::5])
    with pytest.raises(ValueError, match=r"smaller than the frost, \[315, 527\], got \[400, 400\]"):
        photographs.frost_canvas(400, 400)
