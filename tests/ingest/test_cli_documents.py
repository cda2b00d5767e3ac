"""Documents from files of every kind, and error messages for invalid rows."""

from __future__ import annotations

import datetime
import itertools
import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support import every_row

from workers_ai.cli._documents import Document, InputError, read_documents

BOM = "\ufeff"


def read(path: Path, content: str | bytes | None = None) -> list[Document]:
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return list(read_documents(path))


# JSONL


@pytest.mark.parametrize("name", ["docs.jsonl", "docs.ndjson", "DOCS.JSONL"])
def test_jsonl(tmp_path: Path, name: str) -> None:
    content = (
        '{"id": "a", "text": "one"}\n'
        "\n"
        '{"id": 7, "text": "two\\nlines \\u2028 ünï", "metadata": {"page": 1, "tag": "ü"}}\r\n'
        '{"id": "c", "text": "", "metadata": null}\n'
        '{"id": "d", "text": "t", "page": 2, "metadata": "m"}'
    )
    assert read(tmp_path / name, BOM + content) == [
        Document("a", "one", None),
        Document(7, "two\nlines \u2028 ünï", '{"page": 1, "tag": "ü"}'),
        Document("c", "", None),
        Document("d", "t", '{"page": 2, "metadata": "m"}'),
    ]


@pytest.mark.parametrize("metadata", [{"a": [1, None]}, [1, 2], "text", 0, False, "half \ud800"])
def test_metadata_is_any_json(tmp_path: Path, metadata: Any) -> None:
    (document,) = read(tmp_path / "docs.jsonl", json.dumps({"id": 1, "text": "t", "metadata": metadata}))
    assert document.metadata is not None
    assert json.loads(document.metadata) == metadata


@every_row(
    ("line", "says"),
    [
        ("{", "Expecting property name"),
        ("[1]", "expected a JSON object, got list"),
        ("null", "expected a JSON object, got NoneType"),
        ('{"text": "t"}', "'id' is missing; found 'text'"),
        ("{}", "'id' is missing; found nothing"),
        ('{"id": 1, "content": "t"}', "'text' is missing; found 'id', 'content'"),
        ('{"id": 1.5, "text": "t"}', "the id 1.5 is neither a string nor an integer of 64 bits"),
        ('{"id": true, "text": "t"}', "the id True is neither"),
        ('{"id": null, "text": "t"}', "the id None is neither"),
        ('{"id": 9223372036854775808, "text": "t"}', "the id 9223372036854775808 is neither"),
        ('{"id": "\\ud800", "text": "t"}', r"the id '\ud800' contains a lone surrogate: remove it"),
        ("[" * 100_000, "nested too deep"),
        ('{"id": 1, "text": "t", "x": ' + '{"a":' * 100_000 + "1" + "}" * 100_001, "nested too deep"),
        ('{"id": 1, "text": null}', "the text of 1 is a NoneType, not a string: convert it"),
        ('{"id": 1, "text": ["t"]}', "the text of 1 is a list, not a string"),
        (b'{"id": 1, "text": "\xff"}', "not UTF-8 (invalid start byte)"),
    ],
)
def test_an_invalid_line_is_reported(tmp_path: Path, line: str | bytes, says: str) -> None:
    line = line if isinstance(line, bytes) else line.encode()
    path = tmp_path / "docs.jsonl"
    with pytest.raises(InputError) as caught:
        read(path, b'{"id": 1, "text": "t"}\n\n' + line + b"\n")
    assert str(caught.value).startswith(f"{path}, line 3: {says}")


def test_rows_are_read_one_by_one(tmp_path: Path) -> None:
    path = tmp_path / "docs.jsonl"
    path.write_text('{"id": 1, "text": "t"}\n' * 2 + "no more\n")
    assert [document.id for document in itertools.islice(read_documents(path), 2)] == [1, 1]


# CSV


def test_csv(tmp_path: Path) -> None:
    content = (
        'text,id\r\n"two\r\nlines, ""quoted"" ünï",a\r\nplain,2\r\n,empty\r\n' + "x" * 200_000 + ",long\r\n"
    )  # a cell longer than the default limit of the csv module
    assert read(tmp_path / "docs.csv", BOM + content) == [
        Document("a", 'two\r\nlines, "quoted" ünï', None),
        Document("2", "plain", None),
        Document("empty", "", None),
        Document("long", "x" * 200_000, None),
    ]


def test_other_columns_of_a_csv_are_metadata(tmp_path: Path) -> None:
    assert read(tmp_path / "a.csv", "id,text,page,tag\n1,t,2,x\n")[0].metadata == '{"page": "2", "tag": "x"}'
    content = 'id,text,metadata\n1,t,"{""page"": 2}"\n2,t,plain\n3,t,\n'
    assert [document.metadata for document in read(tmp_path / "b.csv", content)] == ['{"page": 2}', '"plain"', None]


def test_a_cell_that_is_nested_too_deep_is_text(tmp_path: Path) -> None:
    (document,) = read(tmp_path / "docs.csv", "id,text,metadata\n1,t," + "[" * 100_000 + "\n")
    assert document.metadata == f'"{"[" * 100_000}"'


def test_a_csv_with_only_a_header_is_empty(tmp_path: Path) -> None:
    assert read(tmp_path / "docs.csv", "id,text\n") == []
    assert read(tmp_path / "docs.csv", "") == []


@pytest.mark.parametrize(
    ("content", "line", "says"),
    [
        (b'id,text\n"a\nb",t\nc\n', 4, "expected 2 fields as in the header"),
        (b"id,text\na,t\nb,t,more\n", 3, "expected 2 fields as in the header"),
        (b"name,text\na,t\n", 1, "'id' is missing; found 'name', 'text'"),
        (b'id,text\na,"t" x\n', 2, "',' expected after '\"'"),
        (b'id,text\na,t\nb,"open\n', 3, "unexpected end of data"),
        (b"id,text\na,t\nb,\xff\n", 3, "not UTF-8"),
    ],
)
def test_an_invalid_csv_row_is_reported(tmp_path: Path, content: bytes, line: int, says: str) -> None:
    path = tmp_path / "docs.csv"
    with pytest.raises(InputError) as caught:
        read(path, content)
    assert str(caught.value).startswith(f"{path}, line {line}: ")
    assert says in str(caught.value)


# Parquet


def parquet(path: Path, **columns: Any) -> Path:
    pq.write_table(pa.table(columns), path, row_group_size=2)
    return path


def test_parquet(tmp_path: Path) -> None:
    day = datetime.date(2026, 1, 2)
    path = parquet(tmp_path / "docs.parquet", id=[1, 2, 3], text=["one", "ünï", ""], day=[day] * 3, n=[1.5, None, 2.0])
    assert read(path) == [
        Document(1, "one", '{"day": "2026-01-02", "n": 1.5}'),
        Document(2, "ünï", '{"day": "2026-01-02", "n": null}'),
        Document(3, "", '{"day": "2026-01-02", "n": 2.0}'),
    ]


def test_metadata_that_the_command_wrote_is_read_unchanged(tmp_path: Path) -> None:
    path = parquet(tmp_path / "docs.parquet", id=["a", "b"], text=["t", "t"], metadata=['{"page": 1}', None])
    assert [document.metadata for document in read(path)] == ['{"page": 1}', None]


def test_a_parquet_may_have_a_name_that_is_not_utf_8(tmp_path: Path) -> None:
    path = parquet(tmp_path / "docs.parquet", id=[1], text=["t"]).rename(tmp_path / "na\udcffme.parquet")
    assert read(path) == [Document(1, "t", None)]


def test_nan_and_infinity_are_null_in_json(tmp_path: Path) -> None:
    """Data frames write missing numbers as NaN."""
    path = parquet(
        tmp_path / "docs.parquet", id=[1, 2], text=["t", "t"], n=[math.nan, 1.5], more=[[{"x": -math.inf}], None]
    )
    assert [document.metadata for document in read(path)] == [
        '{"n": null, "more": [{"x": null}]}',
        '{"n": 1.5, "more": null}',
    ]
    (document,) = read(tmp_path / "docs.jsonl", '{"id": 1, "text": "t", "metadata": [NaN, 1e999, "half \\ud800"]}')
    assert document.metadata == '[null, null, "half \\ud800"]'
    documents = read(tmp_path / "docs.csv", "id,text,metadata\n1,t,NaN\n2,t,[Infinity]\n3,t,[1]\n")
    assert [document.metadata for document in documents] == ['"NaN"', '"[Infinity]"', "[1]"]


def test_an_invalid_parquet_row_is_reported(tmp_path: Path) -> None:
    path = parquet(tmp_path / "docs.parquet", id=[1, 2, 3], text=["one", "two", None])
    with pytest.raises(InputError) as caught:
        read(path)
    assert str(caught.value) == f"{path}, row 3: the text of 3 is a NoneType, not a string: convert it"


def test_an_invalid_parquet_file_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "docs.parquet"
    with pytest.raises(InputError, match="cannot be read as Parquet") as caught:
        read(path, b"PAR1 not at all")
    assert str(path) in str(caught.value)


# Folders


def test_a_folder_of_texts(tmp_path: Path) -> None:
    for name, content in {
        "b.md": f"{BOM}# Title\n", "a.txt": "ünï", "sub/c.RST": "", "sub/d.py": "no text", ".git/e.txt": "hidden",
        "sub/.f.txt": "hidden",
    }.items():  # fmt: skip
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content, encoding="utf-8")
    assert read(tmp_path) == [
        Document("a.txt", "ünï", None),
        Document("b.md", "# Title\n", None),
        Document("sub/c.RST", "", None),
    ]


@pytest.mark.parametrize("place", ["na\udcffme.txt", "fol\udcffder/name.txt"])
def test_a_file_name_that_is_not_utf_8_is_rejected(tmp_path: Path, place: str) -> None:
    (tmp_path / place).parent.mkdir(exist_ok=True)
    (tmp_path / place).write_text("text")
    with pytest.raises(InputError, match="the file name is not UTF-8: rename the file"):
        read(tmp_path)


def test_a_folder_without_texts_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"has no file with the suffix .txt, .md, .rst"):
        read(tmp_path)


def test_a_binary_file_in_a_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match=r"a\.txt: not UTF-8"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("docs.json", "unknown kind of input; pass a folder or a file with the suffix .jsonl, .ndjson, .csv, .parquet"),
        ("docs.jsonl", "does not exist"),
        ("folder", "does not exist"),
    ],
)
def test_an_unknown_or_missing_input_is_rejected(tmp_path: Path, name: str, says: str) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path / name)
    assert says in str(caught.value)
    assert name in str(caught.value)
