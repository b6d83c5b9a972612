"""Small files that would become large, and bytes that are none of what they should be: an error of ours, at once."""

from __future__ import annotations

import io
import json
import struct
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash

from spark_apps.indexes.skipping import records
from spark_apps.jobs.job import Outcome, decode_outcome, encode_outcome
from spark_apps.layout.rules import BucketRules
from spark_apps.storage.errors import InvalidInput, LakeIndexError, LogDamaged, StorageError
from spark_apps.storage.parquet.files import footer_bytes, read_footer
from spark_apps.storage.parquet.headers import open_bounded
from spark_apps.storage.parquet.page_index import PageIndex
from spark_apps.storage.parquet.pages import Chunk, NotPlain
from spark_apps.storage.store import RangedFile, Store
from spark_apps.timeline import hashing_config
from spark_apps.timeline.delta import checkpoints as delta_checkpoints
from spark_apps.timeline.delta import log as delta_log
from spark_apps.timeline.files import DataFile
from spark_apps.timeline.state import PartitionEntry
from spark_apps.workload.event_logs import read_event_logs
from tests.hostile import watching

pytestmark = pytest.mark.by_turn(4)


@contextmanager
def bounded(megabytes: int = 100, seconds: float = 5.0) -> Iterator[None]:
    """The block takes no more memory, of Python's or Arrow's, and no more time."""
    before, began = watching._reset_peak(), time.process_time()
    yield
    assert watching._peak() - before < megabytes << 10
    assert time.process_time() - began < seconds


def skipping_file(header: bytes, folder: Path, said: int | None = None) -> DataFile:
    packed = pa.compress(header, codec="zstd", asbytes=True)
    prefix = struct.pack("<8sQQQ", b"LKSKIP2\n", len(packed), said or len(header), xxhash.xxh3_64_intdigest(packed))
    (folder / "s").write_bytes(prefix + packed)
    return DataFile("index/s@1", "", "", "s", "base", 1, len(prefix + packed), 0)


@pytest.mark.by_turn(1)
def test_given_a_skipping_file_of_a_kilobyte_that_becomes_large_then_it_is_refused(tmp_path: Path) -> None:
    record = msgspec.msgpack.encode([1, 1, 0, [[0]]])
    many = 2_000_000
    header = (
        b"\x86" + b"".join(map(msgspec.msgpack.encode, ("keys", ["a"], "types", ["int"], "gram", 3, "stamps", [{}])))
        + msgspec.msgpack.encode("sections") + b"\x90" + msgspec.msgpack.encode("files")
        + b"\xdd" + struct.pack(">I", many) + record * many
    )  # fmt: skip
    file = skipping_file(header, tmp_path)
    assert file.bytes < 4_000
    del header
    with bounded(), pytest.raises(StorageError, match="does not begin"):
        records.RecordFile(Store(tmp_path), file)


def test_given_a_skipping_file_with_room_for_filters_that_are_not_there_then_it_is_refused(tmp_path: Path) -> None:
    groups = [[0, [1] * 100_000, b""]]
    sections = [[column, "bloom", 1, [], 1, 0] for column in range(1_000)]
    header = msgspec.msgpack.encode(
        {"keys": ["a"] * 1_000, "types": ["int"] * 1_000, "gram": 3, "stamps": [{}], "sections": sections,
         "files": [[1, 100_000, 0, [[0]] * 1_000]], "row_groups": groups}
    )  # fmt: skip
    with bounded(), pytest.raises(StorageError, match="does not fit"):
        records.RecordFile(Store(tmp_path), skipping_file(header, tmp_path))


def _checkpoint_bomb(text: int, rows: int) -> bytes:
    paths = pa.repeat("x" * text, rows)
    added = delta_checkpoints._schema().field("add").type
    arrays = [paths if field.name == "path" else pa.nulls(rows, field.type) for field in added]
    rest = {field.name: pa.nulls(rows, field.type) for field in delta_checkpoints._schema()}
    sink = io.BytesIO()
    pq.write_table(
        pa.table({**rest, "add": pa.StructArray.from_arrays(arrays, fields=list(added))}), sink,
        compression="zstd",
    )  # fmt: skip
    return sink.getvalue()


@pytest.mark.parametrize(("text", "rows"), [(1_000_000, 60), (1, 1_000_000)])
def test_given_a_checkpoint_of_a_delta_log_that_becomes_large_then_it_is_passed_over(
    text: int, rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta_checkpoints, "EVERY", 2)
    body = _checkpoint_bomb(text, rows)
    assert len(body) < 200_000
    store = Store(tmp_path)
    store.put(delta_checkpoints.checkpoint_key(2), body)
    for version in range(5):
        store.put(delta_log.commit_key(version), b'{"txn":{"appId":"a","version":%d}}\n' % version)
    with bounded():
        assert len(list(delta_checkpoints._actions(store, 4))) == 5
        with pytest.raises(OSError, match=r"may take|values in"):
            delta_checkpoints._decode(body)


@pytest.mark.parametrize("damage", [b"", b"PAR1", b"\0" * 100])
def test_given_a_damaged_checkpoint_of_a_delta_log_then_it_is_passed_over(
    damage: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta_checkpoints, "EVERY", 2)
    store = Store(tmp_path)
    other = io.BytesIO()
    pq.write_table(pa.table({"add": ["no struct"], "remove": [1]}), other)
    for body in (damage, other.getvalue()):
        store.put(delta_checkpoints.checkpoint_key(2), body)
        for version in range(5):
            store.put(delta_log.commit_key(version), b'{"txn":{"appId":"a","version":%d}}\n' % version)
        assert len(list(delta_checkpoints._actions(store, 4))) == 5


@pytest.mark.by_turn(3)
@pytest.mark.parametrize("ending", ["zstd", "lz4", "snappy"])
def test_given_an_event_log_of_few_bytes_that_becomes_large_then_the_rest_is_left_out(
    ending: str, tmp_path: Path
) -> None:
    begin = b'{"Event":"SparkListenerApplicationStart","App Name":"a"}\n'
    blocks = 40 if ending == "zstd" else 64
    plain = begin + b" " * ((1 << 20) - len(begin))
    if ending == "zstd":
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, "zstd") as stream:
            stream.write(plain)
            for _ in range(blocks):
                stream.write(b"\n" * (1 << 20))
        body = sink.getvalue().to_pybytes()
    elif ending == "lz4":
        packed = pa.Codec("lz4_raw").compress(plain, asbytes=True)
        body = struct.pack("<8sBiii", b"LZ4Block", 0x20, len(packed), len(plain), 0) + packed
        body *= blocks
    else:
        packed = pa.Codec("snappy").compress(plain, asbytes=True)
        body = b"\x82SNAPPY\x00" + bytes(8) + (struct.pack(">i", len(packed)) + packed) * blocks
    (tmp_path / f"application_1.{ending}").write_bytes(body)
    with bounded(seconds=8.0):
        asked = read_event_logs(tmp_path)
    if ending == "zstd":
        assert asked.refused == {"events beyond what is read": 1}


@pytest.mark.by_turn(1)
def test_given_values_that_a_dictionary_repeats_then_what_they_become_is_known_before() -> None:
    sink = io.BytesIO()
    text = pa.DictionaryArray.from_arrays(pa.array([0] * 10_000, pa.int32()), pa.array(["y" * 1_000_000]))
    pq.write_table(pa.table({"s": text}), sink, compression="zstd", store_schema=False)
    body = sink.getvalue()
    assert len(body) < 10_000
    for read in (lambda file: file.read(), lambda file: next(file.iter_batches(10))):
        with bounded(), pytest.raises(OSError, match="would take 10,00"):
            read(open_bounded(body))


def test_given_files_as_they_are_written_then_they_are_read_within_their_bounds() -> None:
    rows = pa.table({"n": range(1_000), "s": ["x" * (n % 7) for n in range(1_000)], "l": [[n] for n in range(1_000)]})
    for options in ({}, {"row_group_size": 99}, {"data_page_version": "2.0"}, {"use_dictionary": False}):
        sink = io.BytesIO()
        pq.write_table(rows, sink, **options)
        body = sink.getvalue()
        ranged = RangedFile(lambda start, end, body=body: body[start:end], len(body), whole_below=0)
        for source in (body, ranged):
            assert open_bounded(source).read().equals(rows)
            assert open_bounded(source).read_row_group(0, columns=["s"]).num_columns == 1


# --- bytes that are none of what they should be -----------------------------------------------------------------------


def test_given_bytes_that_are_no_outcome_then_it_is_an_error_of_ours() -> None:
    good = encode_outcome(Outcome("receipt", {"a": 1}))
    assert decode_outcome(good).value == {"a": 1}
    for bad in (b"", b"[]", b"1", b'{"format":', b'{"format":"x"}', b"\xff", b"[" * 100_000, good[:-1],
                b'{"kind":7}', b'{"format":1e400}', good.replace(b"receipt", b"recei\xffpt")):  # fmt: skip
        with pytest.raises(LakeIndexError):
            decode_outcome(bad)


def test_given_bytes_that_are_no_meta_of_hashing_then_it_is_an_error_of_ours() -> None:
    counts = {f"p={n}": PartitionEntry(buckets=n + 1, since="20260101000000000") for n in range(20)}
    body = hashing_config.meta_body(counts)
    assert hashing_config.read_meta(body) == {path: (one.buckets, one.since) for path, one in counts.items()}
    assert hashing_config.read_meta(hashing_config.meta_body({})) == {}
    start = body.index(b"\0", 10) + 1
    pack = zlib.compressobj(9, zlib.DEFLATED, -15)
    bomb = pack.compress(bytes(60 << 20)) + pack.flush()
    wide = delta_varint(len(bomb))
    mark = body[-16:]
    with bounded(), pytest.raises(LogDamaged, match="larger"):
        hashing_config.read_meta(body[: body.index(mark) + 16] + b"\x02" + wide + bomb + mark)
    for at in range(body.index(mark), len(body), 2):
        for bad in (body[:at], body[:at] + bytes([body[at] ^ 0x41]) + body[at + 1 :], body[:at] + b"\xff" * 12):
            try:
                hashing_config.read_meta(bad)
            except LogDamaged:
                continue
    assert start


def delta_varint(number: int) -> bytes:
    number <<= 1
    written = bytearray()
    while number > 127:
        written.append(number & 127 | 128)
        number >>= 7
    return bytes([*written, number])


def test_given_a_partition_of_a_number_beyond_all_then_a_range_does_not_match_it() -> None:
    rules = BucketRules("range", [("0 <= n < 5", 8)], 4)
    for value in ("1e99999999999999999999", "-1E+99999999999999999999", "9" * 5_000, "1e-99999999999999999999"):
        assert rules.count_for(f"n={value}") in (4, 8)
    assert rules.count_for("n=3") == 8
    with pytest.raises(InvalidInput):
        BucketRules("range", [("n < 1e99999999999999999999", 8)], 4)
    assert BucketRules("range", [(f"n < {'9' * 5_000}", 8)], 4).count_for("n=3") == 8


def test_given_a_delta_log_that_begins_with_anything_then_it_is_no_origin_of_ours() -> None:
    for bad in (b"", b"\xff", b'{"commitInfo":"\xff"}', b"[" * 100_000, b'{"commitInfo":{"airflowProviderIndex":1}}',
                b'{"commitInfo":{"airflowProviderIndex":{"log":"\xed\xa0\x80","version":1}}}'):  # fmt: skip
        assert delta_log.origin_of(bad + b"\n") is None


def _paged(body: bytes) -> tuple[PageIndex, RangedFile]:
    ranged = RangedFile.of(body)
    return PageIndex(footer_bytes(ranged)), ranged


def _asked(body: bytes) -> None:
    paged, ranged = _paged(body)
    paged.candidates(ranged, 0, {"n": "bigint", "s": "string"}, lambda _name, _bounds: True)
    for rows in (np.array([1, 999]), np.arange(700, 800)):
        paged.read(ranged, 0, ["n", "s"], rows)


def _chunked(body: bytes) -> None:
    metadata = read_footer(body)
    for index in range(metadata.num_columns):
        chunk = Chunk.of(metadata, 0, index)
        for page in chunk.pages(body[chunk.start : chunk.end]):
            assert page.first_value is not None
            len(page.values)


@pytest.mark.parametrize("ask", [_asked, _chunked])
def test_given_mutated_bytes_then_pages_are_an_error_of_reading_or_read(ask: Callable[[bytes], Any]) -> None:
    rows = pa.table({"n": range(1_000), "s": [f"{n:04}" for n in range(1_000)]})
    sink = io.BytesIO()
    pq.write_table(rows, sink, use_dictionary=False, compression="snappy", data_page_size=500, write_page_index=True,
                   write_batch_size=50)  # fmt: skip
    body = sink.getvalue()
    ask(body)
    for at in [*range(4, 100, 3), *range(len(body) - 3_000, len(body), 29)]:
        for byte in (0, 0xFF, body[at] ^ 1):
            try:
                ask(body[:at] + bytes([byte]) + body[at + 1 :])
            except (OSError, pa.ArrowException, NotPlain):
                continue


def test_json_of_event_logs_may_have_numbers_of_any_length(tmp_path: Path) -> None:
    event = {"Event": "org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart", "executionId": 1, "time": 1}
    text = json.dumps(event).replace('"time": 1', '"time": ' + "9" * 100_000)
    (tmp_path / "log").write_text(text.replace(": ", ":", 1) + "\n")
    assert sum(read_event_logs(tmp_path).refused.values()) == 1
