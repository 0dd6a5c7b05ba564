from __future__ import annotations

import sys

import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import parquet
from safetensors.torch import save_file

from orthograd.calibration.files.reading import read_predictions

LOGITS = np.array([[2.5, -1.0, 0.25], [0.5, 1.5, -3.0]])
LABELS = np.array([0, 1])
CSV = "class_0,class_1,label,class_2\n2.5,-1,0,0.25\n0.5,1.5,1,-3\n"


def written(tmp_path, name, scores="logits", labels="labels"):
    path = tmp_path / name
    if path.suffix == ".npz":
        np.savez(path, **{scores: LOGITS, labels: LABELS, "names": np.array(["a", "b"], dtype=object)})
    elif path.suffix == ".safetensors":
        save_file({scores: torch.tensor(LOGITS), labels: torch.tensor(LABELS)}, path)
    elif path.suffix == ".csv":
        path.write_text(CSV.replace("label", labels))
    else:
        parquet.write_table(pa.table({scores: LOGITS.tolist(), labels: LABELS}), path)
    return path


def refused(path, words, **options):
    with pytest.raises(ValueError, match="^" + str(path)) as error:
        read_predictions(path, **options)
    for word in words:
        assert word in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["a.npz", "a.safetensors", "a.csv", "a.parquet"])
@pytest.mark.parametrize("labels", ["labels", "label", "y", "targets"])
def test_every_format_gives_the_same_scores_and_labels(tmp_path, name, labels):
    found = read_predictions(written(tmp_path, name, labels=labels))
    assert torch.equal(found.scores, torch.tensor(LOGITS))
    assert torch.equal(found.labels, torch.tensor(LABELS))
    assert found.name == name
    assert not found.is_probabilities


@pytest.mark.parametrize("name", ["a.npz", "a.safetensors", "a.parquet"])
@pytest.mark.parametrize("scores", ["probabilities", "probs"])
def test_probabilities_are_read_only_when_asked_for(tmp_path, name, scores):
    path = written(tmp_path, name, scores)
    refused(path, ["expected logits, got", repr(scores), "pass --probabilities"])
    assert read_predictions(path, probabilities=True).is_probabilities
    refused(written(tmp_path, name), ["leave out --probabilities"], probabilities=True)


@pytest.mark.parametrize("name", ["a.npz", "a.safetensors", "a.parquet"])
def test_other_keys_can_be_chosen_and_missing_ones_are_told(tmp_path, name):
    path = written(tmp_path, name, "output", "truth")
    found = read_predictions(path, scores_key="output", labels_key="truth")
    assert torch.equal(found.scores, torch.tensor(LOGITS))
    refused(path, ["expected labels named", "'output'", "'truth'", "--labels-key"], scores_key="output")
    refused(path, ["expected scores named 'nothing', got 'output', 'truth'"], scores_key="nothing", labels_key="truth")


def test_missing_scores_are_told(tmp_path):
    refused(written(tmp_path, "a.npz", "output"), ["expected scores named 'logits'", "'output'", "--scores-key"])


def test_two_names_for_the_labels_are_not_chosen_between(tmp_path):
    np.savez(tmp_path / "a.npz", logits=LOGITS, labels=LABELS, y=LABELS)
    refused(tmp_path / "a.npz", ["expected one array of labels, got 'labels', 'y'", "--labels-key"])
    assert torch.equal(read_predictions(tmp_path / "a.npz", labels_key="y").labels, torch.tensor(LABELS))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_safetensors_keep_their_precision(tmp_path, dtype):
    save_file({"logits": torch.tensor(LOGITS, dtype=dtype), "labels": torch.tensor(LABELS)}, tmp_path / "a.safetensors")
    assert read_predictions(tmp_path / "a.safetensors").scores.dtype == dtype


def test_eight_bits_are_too_few(tmp_path):
    scores = torch.tensor(LOGITS).to(torch.float8_e4m3fn)
    save_file({"logits": scores, "labels": torch.tensor(LABELS)}, tmp_path / "a.safetensors")
    refused(tmp_path / "a.safetensors", ["at least half precision in 'logits', got torch.float8_e4m3fn"])


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_whole_labels_in_floating_point_are_integers(tmp_path, suffix):
    """Trainer.predict of Hugging Face has the labels of a multi-label problem in float32."""
    path = tmp_path / f"a{suffix}"

    def file(labels, dtype):
        arrays = {"predictions": torch.zeros(2, 2), "label_ids": torch.tensor(labels, dtype=dtype)}
        if suffix == ".npz":
            np.savez(path, **{name: array.numpy() for name, array in arrays.items()})
        else:
            save_file(arrays, path)
        return path

    found = read_predictions(file([[1, 0], [-100, 1]], torch.float32), task="multilabel")
    assert (found.labels.dtype, found.labels.tolist()) == (torch.int64, [[1, 0], [-100, 1]])
    refused(file([[1, 0], [0, 0.5]], torch.float32), ["labels as integers, got 0.5 at (1, 1) of 'label_ids'"])
    refused(file([1, torch.nan], torch.float64), ["labels as integers, got nan in row 1 of 'label_ids'"])
    refused(file([1, 2050], torch.float16), ["got 2050 in row 1", "torch.float16 cannot hold every integer above 2048"])


@pytest.mark.parametrize("dtype", [">f4", "<f8", "f2"])
def test_arrays_of_any_byte_order_are_read(tmp_path, dtype):
    np.savez(tmp_path / "a.npz", logits=LOGITS.astype(dtype), labels=LABELS.astype(">u2"))
    found = read_predictions(tmp_path / "a.npz")
    assert found.scores.double().tolist() == LOGITS.tolist()
    assert found.labels.dtype == torch.int64
    assert found.labels.tolist() == LABELS.tolist()


@pytest.mark.parametrize("column", [pa.list_(pa.float32()), pa.list_(pa.float32(), 3), pa.large_list(pa.float16())])
def test_parquet_lists_of_every_kind_are_read(tmp_path, column):
    scores = pa.array([np.float16(row) if "half" in str(column) else row.tolist() for row in LOGITS], column)
    parquet.write_table(pa.table({"label": LABELS, "logits": scores}), tmp_path / "a.parquet")
    assert read_predictions(tmp_path / "a.parquet").scores.tolist() == LOGITS.tolist()


def test_parquet_columns_are_classes_without_the_index_of_pandas(tmp_path):
    columns = {"p0": LOGITS[:, 0], "y": LABELS, "p1": LOGITS[:, 1].astype("f4"), "p2": LOGITS[:, 2]}
    parquet.write_table(pa.table({**columns, "__index_level_0__": [7, 8]}), tmp_path / "a.parquet")
    found = read_predictions(tmp_path / "a.parquet")
    assert found.scores.tolist() == LOGITS.tolist()
    assert found.labels.tolist() == LABELS.tolist()


def test_csv_knows_byte_order_marks_quotes_blank_lines_and_labels_with_a_point(tmp_path):
    (tmp_path / "a.csv").write_text('\ufeff"cat","dog, big", label\r\n"1",2.0,0.0\r\n\r\n3e0, 4,1.0\r\n')
    found = read_predictions(tmp_path / "a.csv", classes=["cat", "dog, big"])
    assert found.scores.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert found.labels.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0,1,label\n1,2,0\n1,two,1\n", ["a.csv:3: expected a number in column '1', got 'two'"]),
        ("0,1,label\n1,,0\n", ["a.csv:2: expected a number in column '1', got ''"]),
        ("0,1,label\n1,2,cat\n", ["a.csv:2: expected a number in column 'label', got 'cat'", "must be those"]),
        ("0,1,label\n1,2,0\n1,2\n", ["a.csv:3: expected 3 cells as in the header, got 2"]),
        ("0,1,label\n1,2,0.5\n", ["a.csv:2: expected labels as integers, got 0.5 in 'label'"]),
        ("0,1,label\n1,2,0\n1,2,inf\n", ["a.csv:3: ", "got inf in 'label'"]),
        ("0,1,label\n1,2,nan\n", ["a.csv:2: ", "got nan in 'label'"]),
        ("0,1,label\n1,2,1e300\n", ["labels as integers", "got 1e+300 in 'label': torch.float64 cannot hold every"]),
        ("0,1,label\n1,2,9223372036854775808\n", ["got 9.22337e+18 in 'label'"]),
        ("0,1,label\n", ["at least one row under the header"]),
        ("", ["expected labels named", "got nothing"]),
        ("1,2,0\n3,4,1\n", ["expected labels named", "got '1', '2', '0'"]),
        ("cat;dog;label\n1;2;0\n", ["separated by ','", "got 'cat;dog;label'", "instead of ';'"]),
        ("cat\tdog\tlabel\n1\t2\t0\n", ["separated by ','", "instead of '\\t'"]),
        ("cat,cat,label\n1,2,0\n", ["got 'cat' twice"]),
        ("0,1,10,2,label\n0,1,2,3,0\n", ["numbered from 0", "got '0', '1', '10', '2'"]),
        ("cat,y,label\n1,2,0\n", ["expected one array of labels, got 'label', 'y'"]),
    ],
)
def test_csv_that_cannot_be_used_is_refused(tmp_path, text, words):
    (tmp_path / "a.csv").write_text(text)
    refused(tmp_path / "a.csv", words)


def test_csv_has_no_key_for_scores_but_one_for_labels(tmp_path):
    path = written(tmp_path, "a.csv", labels="truth")
    assert read_predictions(path, labels_key="truth").labels.tolist() == [0, 1]
    refused(path, ["no --scores-key for a .csv", "--classes"], scores_key="logits")


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"p_0": ["a", "b"], "p_1": [1.0, 2.0], "label": [0, 1]}, ["numbers in 'p_0', got string"]),
        ({"p_0": [1.0, None], "p_1": [1.0, 2.0], "label": [0, 1]}, ["got 1 empty in 'p_0'"]),
        ({"logits": [[1.0, 2.0], [1.0]], "label": [0, 1]}, ["the same number of scores for each sample", "[2, 1]"]),
        ({"logits": [[1.0, 2.0], None], "label": [0, 1]}, ["the same number of scores for each sample"]),
        ({"logits": [[1.0, None], [1.0, 2.0]], "label": [0, 1]}, ["got 1 empty in 'logits'"]),
        ({"logits": [1.0, 2.0], "label": [0, 1]}, ["a list of scores for each sample in 'logits', got double"]),
        ({"logits": [[1.0, 2.0]], "cat": [1]}, ["expected labels named", "'logits', 'cat'"]),
    ],
)
def test_parquet_that_cannot_be_used_is_refused(tmp_path, table, words):
    parquet.write_table(pa.table(table), tmp_path / "a.parquet")
    refused(tmp_path / "a.parquet", words)


def test_pickled_arrays_are_never_loaded(tmp_path):
    np.savez(tmp_path / "a.npz", logits=np.array([[1, 2]], dtype=object), labels=LABELS)
    refused(tmp_path / "a.npz", ["expected numbers in 'logits', got Python objects"])


def tabled(path, names, rows):
    if path.suffix == ".csv":
        path.write_text("\n".join(",".join(map(str, line)) for line in [names, *rows]))
    else:
        parquet.write_table(pa.table(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))), path)
    return path


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("prefix", ["class_", "", "logit ", "v2.p"])
def test_numbered_columns_are_sorted_by_their_number_as_labels_count(tmp_path, suffix, prefix):
    names = sorted(f"{prefix}{number}" for number in range(12))  # 0, 1, 10, 11, 2 …
    rows = [
        [9.0 if int(name.removeprefix(prefix)) == label else 0.5 for name in names] + [label] for label in range(12)
    ]
    found = read_predictions(tabled(tmp_path / f"a{suffix}", [*names, "label"], rows))
    assert torch.equal(found.scores.argmax(1), found.labels)
    assert found.source == (
        f"classes '{prefix}0', '{prefix}1' … '{prefix}11' (12 columns, sorted by their numbers), label 'label'"
    )


def test_a_file_says_where_its_numbers_come_from(tmp_path):
    assert read_predictions(written(tmp_path, "a.npz")).source == "logits 'logits', labels 'labels'"
    assert read_predictions(written(tmp_path, "a.safetensors")).source == "logits 'logits', labels 'labels'"
    assert read_predictions(written(tmp_path, "a.parquet", "probs"), probabilities=True).source == (
        "probabilities 'probs', labels 'labels'"
    )
    assert read_predictions(written(tmp_path, "a.csv")).source == (
        "classes 'class_0', 'class_1', 'class_2' (3 columns), label 'labels'"
    )


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["id", "class_0", "class_1", "pred"], ["'id', 'pred' are not clearly classes", "--classes 'class_*'"]),
        (["id", "0", "1"], ["'id' is not clearly a class", "--classes '*'"]),
        (["cat", "dog"], ["numbered from 0", "got 'cat', 'dog'", "--classes cat,dog"]),
        (["class_1", "class_2"], ["numbered from 0", "got 'class_1', 'class_2'", "--classes class_1,class_2"]),
        (["class_0", "class_2"], ["numbered from 0", "got 'class_0', 'class_2'"]),
        (["class_0", "class_00", "class_1"], ["numbered from 0", "'class_00'"]),
        (["p_0", "p_1", "z_0", "z_1"], ["'p_0', 'p_1', 'z_0', 'z_1'", "--classes 'p_*'", "--classes 'z_*'"]),
        (["0.0", "1.0"], ["numbered from 0", "got '0.0', '1.0'"]),
    ],
)
def test_a_column_that_is_not_clearly_a_class_is_refused(tmp_path, suffix, names, words):
    rows = [[0.25] * len(names) + [label] for label in (0, 1)]
    refused(tabled(tmp_path / f"a{suffix}", [*names, "label"], rows), words)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("index", ["", "Unnamed: 0"])
def test_the_index_of_pandas_is_no_class(tmp_path, suffix, index):
    rows = [[9 - row, 0.25, 0.75, 0] for row in range(3)]
    path = tabled(tmp_path / f"a{suffix}", [index, "cat", "dog", "label"], rows)
    refused(path, ["got 'cat', 'dog'; name", "--classes cat,dog"])
    refused(path, [f"expected names in --classes, got {index!r}, the index"], classes=[index, "cat", "dog"])
    path = tabled(tmp_path / f"b{suffix}", [index, "0", "1", "label"], rows)
    assert read_predictions(path).source == "classes '0', '1' (2 columns), label 'label'"


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize(
    ("names", "row", "words"),
    [
        (["row", "cat", "dog"], lambda row: [row, 0.5, 0.5], "--classes cat,dog"),
        (["file", "cat", "dog"], lambda row: [f"{row}.png", 0.5, 0.5], "--classes cat,dog"),
        (["prediction", "confidence"], lambda row: [1, 0.5], "store one column per class"),
        (["prediction", "confidence", "cat", "dog"], lambda row: ["cat", 0.5, 0.5, 0.5], "--classes cat,dog"),
    ],
)
def test_only_columns_that_may_be_classes_are_proposed(tmp_path, suffix, names, row, words):
    path = tabled(tmp_path / f"a{suffix}", [*names, "label"], [[*row(number), 0] for number in range(4)])
    with pytest.raises(ValueError, match=f"{words}(, with the logits or probabilities of every class)?$"):
        read_predictions(path)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_labels_may_be_the_names_of_the_classes(tmp_path, suffix):
    rows = [[1.5, 2.5, 3.5, label] for label in ("dog", "fox", "cat", "dog")]
    path = tabled(tmp_path / f"a{suffix}", ["fox", "cat", "dog", "label"], rows)
    found = read_predictions(path, classes=["cat", "dog", "fox"])
    assert found.labels.tolist() == [1, 2, 0, 1]
    assert found.scores[0].tolist() == [2.5, 3.5, 1.5]
    place = ":4" if suffix == ".csv" else ", row 2"
    refused(path, [f"{place}: expected a label among 'dog', 'fox', got 'cat'"], classes=["dog", "fox"])
    with pytest.raises(ValueError, match=r"expected (a number in column|numbers in) 'label', got"):
        read_predictions(path, classes=["cat", "fox"])


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_numbers_stay_the_positions_of_the_classes_if_these_are_numbers_too(tmp_path, suffix):
    path = tabled(tmp_path / f"a{suffix}", ["0", "1", "label"], [[1.5, 2.5, 0], [1.5, 2.5, 1]])
    assert read_predictions(path, classes=["1", "0"]).labels.tolist() == [0, 1]


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_classes_can_be_named_and_other_columns_may_then_hold_anything(tmp_path, suffix):
    names = ["file", "p_1", "dog", "p_0", "label", "cat"]
    path = tabled(tmp_path / f"a{suffix}", names, [["x.png", 1.5, 2.5, 3.5, 1, 4.5], ["y.png", 5.5, 6.5, 7.5, 0, 8.5]])
    found = read_predictions(path, classes=["cat", "dog"])
    assert found.scores.tolist() == [[4.5, 2.5], [8.5, 6.5]]
    assert found.labels.tolist() == [1, 0]
    assert found.source == "classes 'cat', 'dog' (2 columns), label 'label'"
    assert read_predictions(path, classes=["p_*"]).scores.tolist() == [[3.5, 1.5], [7.5, 5.5]]
    refused(path, ["expected the column 'emu', got 'file'"], classes=["cat", "emu"])
    refused(path, ["'cat' twice"], classes=["cat", "cat"])
    refused(path, ["got the label 'label'"], classes=["cat", "label"])
    refused(path, ["expected the columns 'q_0', 'q_1' … of --classes 'q_*'"], classes=["q_*"])
    refused(path, ["at least two classes"], classes=["cat"])


def test_scores_and_classes_are_not_both_named(tmp_path):
    path = written(tmp_path, "a.parquet")
    refused(path, ["either --scores-key or --classes, got both"], classes=["cat", "dog"], scores_key="logits")


def test_a_parquet_column_that_is_there_twice_is_refused_by_its_name(tmp_path):
    columns = [pa.array(LOGITS[:, 0]), pa.array(LOGITS[:, 1]), pa.array(LABELS)]
    parquet.write_table(pa.Table.from_arrays(columns, names=["p0", "p0", "label"]), tmp_path / "a.parquet")
    refused(tmp_path / "a.parquet", ["expected column names that differ, got 'p0' twice"])


def test_the_folders_of_a_parquet_file_are_no_columns(tmp_path):
    (tmp_path / "label=1").mkdir()
    refused(written(tmp_path / "label=1", "a.parquet", labels="truth"), ["got 'logits', 'truth'"])


@pytest.mark.parametrize("name", ["a.npz", "a.safetensors"])
def test_arrays_have_no_columns_to_name(tmp_path, name):
    refused(written(tmp_path, name), ["no columns", "--classes"], classes=["cat", "dog"])


@pytest.mark.parametrize("suffix", [".npz", ".safetensors", ".parquet"])
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"class_0,class_1,label\n1,2,0\n", "begins with b'class_0,"),
        (b"a", "begins with b'a'"),
        (b"\x89PNG\r\n\x1a\n" + bytes(100), "begins with b'\\x89PNG"),
    ],
)
def test_a_file_of_another_format_is_refused_by_what_it_begins_with(tmp_path, suffix, content, words):
    (tmp_path / f"a{suffix}").write_bytes(content)
    refused(tmp_path / f"a{suffix}", [f"cannot be read as {suffix}", words, "another format"])


@pytest.mark.parametrize("suffix", [".npz", ".safetensors", ".parquet", ".csv"])
@pytest.mark.parametrize("true", [".npz", ".safetensors", ".parquet"])
def test_a_file_with_the_suffix_of_another_format_is_told_its_own(tmp_path, suffix, true):
    path = written(tmp_path, f"a{true}").rename(tmp_path / f"b{suffix}")
    if suffix != true:
        refused(path, [f"cannot be read as {suffix}", f"a {true} file"])


@pytest.mark.parametrize(("values", "words"), [(np.array(["a"]), "<U1"), (np.array([1j]), "complex128")])
def test_arrays_that_are_no_numbers_are_refused(tmp_path, values, words):
    np.savez(tmp_path / "a.npz", logits=values, labels=LABELS)
    refused(tmp_path / "a.npz", ["expected numbers in 'logits'", words])


def test_a_single_array_in_disguise_is_refused(tmp_path):
    with (tmp_path / "a.npz").open("wb") as file:
        np.save(file, LOGITS)
    refused(tmp_path / "a.npz", ["named arrays of numpy.savez", "got a single array"])


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".pkl", ".ckpt", ".PT"])
def test_pickles_are_refused_with_the_reason(tmp_path, suffix):
    torch.save({"logits": torch.tensor(LOGITS)}, tmp_path / f"a{suffix}")
    refused(tmp_path / f"a{suffix}", ["pickles, which can run code", ".csv, .parquet, .jsonl or .json"])


@pytest.mark.parametrize(("name", "words"), [("a.npy", "numpy.savez"), ("a.txt", "got .txt"), ("a", "got no suffix")])
def test_other_suffixes_are_refused_with_what_is_accepted(tmp_path, name, words):
    (tmp_path / name).write_bytes(b"")
    refused(tmp_path / name, [words, ".csv, .parquet, .jsonl or .json"])


@pytest.mark.parametrize("name", ["a.npz", "a.safetensors", "a.parquet"])
@pytest.mark.parametrize("damage", ["empty", "cut", "noise", "flipped"])
def test_broken_files_are_refused_by_name(tmp_path, name, damage):
    path = written(tmp_path, name)
    whole = path.read_bytes()
    flipped = whole[:8] + bytes(255 - byte for byte in whole[8:])
    path.write_bytes(
        {"empty": b"", "cut": whole[: len(whole) // 2], "noise": b"noise" * 50, "flipped": flipped}[damage]
    )
    refused(path, ["cannot be read as"])


def test_a_csv_that_is_no_text_is_refused_by_name(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"\xff\xfe\x00\x01" * 30)
    refused(tmp_path / "a.csv", ["cannot be read as .csv"])


def test_a_missing_file_and_a_folder_are_told_apart(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such file"):
        read_predictions(tmp_path / "a.npz")
    (tmp_path / "b.npz").mkdir()
    with pytest.raises(FileNotFoundError, match="not a file"):
        read_predictions(tmp_path / "b.npz")


@pytest.mark.parametrize(
    ("name", "module"), [("a.safetensors", "safetensors"), ("a.parquet", "pyarrow.parquet"), ("a.npz", "numpy")]
)
def test_a_missing_package_is_told_with_how_to_get_it(tmp_path, monkeypatch, name, module):
    path = written(tmp_path, name)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"need {module.split('.')[0]}: pip install '\.\[lab\]'"):
        read_predictions(path)
