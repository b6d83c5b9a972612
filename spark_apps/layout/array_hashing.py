"""The buckets of many keys at once, from Arrow columns: Spark's ``xxhash64``, computed on whole numpy arrays.

The result is that of :func:`spark_apps.layout.hashing.bucket_id` for each key. Other hash functions, and types that are
not hashed from bytes of few lengths, are left to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spark_apps.layout.types import ColumnType

_SEED = 42
_P1, _P2, _P3, _P4, _P5 = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)
_AS_INT = {"tinyint", "smallint", "int", "date"}
_AS_LONG = {"bigint", "timestamp", "timestamp_ntz"}


def buckets_of_columns(columns: Sequence[Any], kinds: Sequence[ColumnType], count: int) -> Any:
    """Return the ``xxhash64`` bucket of each row as a numpy array; ``None`` for a type not hashed here.

    :param columns: Arrow arrays, one a hash field, of the types in which
        :func:`spark_apps.indexes.keyed.matching.normalize_column` gives them. A null leaves the hash as it is.
    """
    import numpy as np

    if not all(kind.kind in {"string", "binary", *_AS_INT, *_AS_LONG} for kind in kinds):
        return None
    hashed = np.full(len(columns[0]), _SEED, np.uint64)
    with np.errstate(over="ignore"):
        for values, kind in zip(columns, kinds, strict=True):
            _mix_in(hashed, values, kind.kind)
    return hashed.astype(np.int64) % np.int64(count)


def _mix_in(hashed: Any, values: Any, kind: str) -> None:
    import numpy as np

    given = np.flatnonzero(~values.is_null().to_numpy(zero_copy_only=False))
    values = values.drop_null()
    if kind in _AS_INT or kind in _AS_LONG:
        numbers = values.cast("int32" if kind in _AS_INT else "int64").to_numpy(zero_copy_only=False)
        matrix = np.ascontiguousarray(numbers).view(np.uint8).reshape(len(numbers), 4 if kind in _AS_INT else 8)
        hashed[given] = _xxhash64(matrix, hashed[given])
        return
    for width, (strings, positions) in by_length(values).items():
        matrix = np.ascontiguousarray(strings).view(np.uint8).reshape(len(positions), -1)[:, :width]
        hashed[given[positions]] = _xxhash64(matrix, hashed[given[positions]])


def by_length(values: Any) -> dict[int, tuple[Any, Any]]:
    """Return the values of an Arrow array of strings or binaries without nulls by length in bytes.

    Each length has those values as a numpy array of ``S…``, and their positions. Values of no length stand as one zero
    byte each.
    """
    import numpy as np

    size, data = len(values), values.buffers()[2]
    offsets = np.frombuffer(values.buffers()[1], np.int32, size + 1, values.offset * 4) if size else np.zeros(1, "i4")
    content = np.frombuffer(data if data is not None else b"", np.uint8)
    lengths = np.diff(offsets)
    groups: dict[int, tuple[Any, Any]] = {}
    same = size and (lengths == lengths[0]).all()
    for width in [int(lengths[0])] if same else map(int, np.unique(lengths)):
        positions = np.arange(size) if same else np.flatnonzero(lengths == width)
        if not width:
            groups[0] = np.zeros(len(positions), "S1"), positions
        elif same:
            groups[width] = content[offsets[0] : offsets[-1]].view(f"S{width}"), positions
        else:
            matrix = content[offsets[positions][:, None] + np.arange(width)]
            groups[width] = matrix.reshape(-1).view(f"S{width}"), positions
    return groups


def _rotated(values: Any, bits: int) -> Any:
    import numpy as np

    return (values << np.uint64(bits)) | (values >> np.uint64(64 - bits))


def _round(lanes: Any, lane: Any) -> Any:
    import numpy as np

    return _rotated(lanes + lane * np.uint64(_P2), 31) * np.uint64(_P1)


def _xxhash64(matrix: Any, seeds: Any) -> Any:
    """Return XXH64 of the rows of a matrix of bytes, each with its own seed."""
    import numpy as np

    p1, p2, p3, p4, p5 = map(np.uint64, (_P1, _P2, _P3, _P4, _P5))
    width = matrix.shape[1]
    done = width - width % 32 if width >= 32 else 0

    def lane(start: int, kind: str) -> Any:
        size = np.dtype(kind).itemsize
        return np.ascontiguousarray(matrix[:, start : start + size]).view(kind)[:, 0].astype(np.uint64)

    if done:
        lanes = [seeds + p1 + p2, seeds + p2, seeds.copy(), seeds - p1]
        for start in range(0, done, 32):
            lanes = [_round(each, lane(start + 8 * n, "<u8")) for n, each in enumerate(lanes)]
        result = sum(_rotated(each, bits) for each, bits in zip(lanes, (1, 7, 12, 18), strict=True))
        for each in lanes:
            result = (result ^ _round(np.zeros_like(each), each)) * p1 + p4
    else:
        result = seeds + p5
    result = result + np.uint64(width)
    while done + 8 <= width:
        result = _rotated(result ^ _round(np.zeros_like(result), lane(done, "<u8")), 27) * p1 + p4
        done += 8
    if done + 4 <= width:
        result = _rotated(result ^ (lane(done, "<u4") * p1), 23) * p2 + p3
        done += 4
    for start in range(done, width):
        result = _rotated(result ^ (lane(start, "u1") * p5), 11) * p1
    result = (result ^ (result >> np.uint64(33))) * p2
    result = (result ^ (result >> np.uint64(29))) * p3
    return result ^ (result >> np.uint64(32))
