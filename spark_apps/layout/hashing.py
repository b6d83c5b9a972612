"""The bucket of a key, computed on the driver exactly as Spark computes it on the rows.

A hash function reduces the values of the hash fields to a bucket below a count. Its twin for Spark is in
``spark_apps.mergetree.buckets``; the two must agree for every value, for a row in the wrong bucket is a lost row.
``xxhash64`` and ``java`` are built in; a user's is a SQL expression, which only Spark computes, or a class.

Many keys at once, given as Arrow columns, are hashed by ``xxhash64`` on whole numpy arrays; other functions, and types
that are not hashed from bytes of few lengths, are left to :func:`bucket_id`.

``sql:crc32(cast(id as binary))`` is persisted in the table's definition and must mean the same in every session for as
long as the table lives, so only what depends on nothing but its arguments is allowed: no random numbers, no clocks, no
session time zone, no user-defined functions, no queries.

``ranges:["10", "20"]`` puts values below 10 into bucket 0, from 10 to below 20 into 1, all else (NaN too) into 2, and a
null into 0. The bounds are written as partition values are, so that they mean the same in every session.
"""

from __future__ import annotations

import decimal
import json
import re
import struct
from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any

from spark_apps.layout.hash_functions import FUNCTIONS, HashFunction
from spark_apps.layout.partitions import canonical_string, value_of
from spark_apps.layout.types import ColumnType, column_types, days, micros, normalize, parse_type, unscaled
from spark_apps.storage.errors import InvalidInput, InvalidRule, InvalidSchema
from spark_apps.timeline.limits import MAX_BUCKETS

# --- buckets by ranges of the first field -----------------------------------------------------------------------------


RANGES = "ranges:"

_RANGE_KINDS = ("string", "date", "timestamp", "timestamp_ntz", "decimal", "float", "double")
_MAX_BOUNDS = 1_000
"""Ranges of a function: each is a comparison in the code that Spark makes."""

_MAX_BOUND_LENGTH = 64
"""Characters of a bound, which need not be a value: more would hardly divide the rows better."""


def can_bound(column: ColumnType) -> bool:
    """Test whether values of a type can be divided by ranges."""
    return column.is_integer or column.kind in _RANGE_KINDS


def range_bounds(function: str, kind: str) -> tuple[Any, ...]:
    """Return the bounds that a function's text names, lowest first.

    :raises InvalidRule: if it names none such.
    """
    return _bounds(function, parse_type(kind))


@lru_cache(maxsize=256)
def _bounds(function: str, column: ColumnType) -> tuple[Any, ...]:
    try:
        if not function.startswith(RANGES):
            raise ValueError(function)
        bounds = tuple(value_of(text, column) for text in json.loads(function.removeprefix(RANGES)))
        fits = len(bounds) < _MAX_BOUNDS and all(one is not None and one == one for one in bounds)
        fits = fits and all(one < other for one, other in pairwise(bounds))
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise _unreadable_bounds(function, column) from error
    if not fits:
        raise _unreadable_bounds(function, column)
    return bounds


def _unreadable_bounds(function: str, column: ColumnType) -> InvalidRule:
    return InvalidRule(
        f"{function!r} is not a list of values of type {column.text!r} that rise.",
        hint="Leave the bounds out: they are found in the rows when an index is built.",
    )


def between_bounds(values: Collection[Any], column: ColumnType, count: int) -> str:
    """Return the function that deals values among buckets in like numbers.

    :param values: a random sample of them; nulls do not count.
    :param count: buckets. Fewer are used where values repeat a great deal, and never more than 1,000.
    """
    count = min(count, _MAX_BOUNDS)
    known = [value for value in (normalize(each, column) for each in values) if value is not None]
    # NaN is above all numbers, and so in the last range, whose end is no bound.
    numbers = sorted(value for value in known if value == value)
    places = (number * len(known) // count for number in range(1, count))
    cuts = [numbers[place] for place in places if place < len(numbers)]
    bounds = sorted({cut[:_MAX_BOUND_LENGTH] if isinstance(cut, str) else cut for cut in cuts})
    return RANGES + json.dumps([canonical_string(bound, column) for bound in bounds])


def range_bucket(function: str, values: Sequence[Any], columns: Sequence[ColumnType], count: int) -> int:
    """Return the bucket of normalized values.

    :raises InvalidRule: as :func:`range_bounds` does.
    """
    if values[0] is None:
        return 0
    return min(bisect_right(_bounds(function, columns[0]), values[0]), count - 1)


# --- hash functions that are SQL expressions --------------------------------------------------------------------------


SQL = "sql:"

_MAX_SQL_LENGTH = 2_000
_SQL_TOKEN = re.compile(
    r"(?P<blank>\s+)"
    r"|(?P<text>'[^'\\]*'(?!'))"  # what a backslash or a doubled quote means depends on the session
    r"|(?P<quoted>`(?:[^`]|``)+`)"
    r"|(?P<number>\d+(?:\.\d+)?[LSY]?(?!\w))"
    r"|(?P<word>[^\W\d]\w*)"
    r"|(?P<sign><=>|<=|>=|<>|!=|\|\||>>>|<<|>>|[-+*%&|^~=<>(),])",
    re.IGNORECASE | re.DOTALL,
)
# upper, lower and their kin are missing on purpose: their tables change from one Java to the next.
_SQL_FUNCTIONS = frozenset(
    """abs ascii bit_count bit_length char_length character_length coalesce concat conv crc32 datediff day dayofmonth
    dayofyear greatest hash hex if ifnull instr least left length locate lpad md5 mod month nullif nvl octet_length
    pmod position quarter replace reverse right rpad sha sha1 sha2 shiftleft shiftright sign split_part substr
    substring translate unhex unix_date weekofyear xxhash64 year cast try_cast""".split()  # noqa: SIM905
)
_SQL_KEYWORDS = frozenset(
    """and as between case div else end false in is not null or then true when
    bigint binary boolean date int integer long short smallint string tinyint""".split()  # noqa: SIM905
)
_STABLE_TYPES = ("string", "binary", "boolean", "tinyint", "smallint", "int", "bigint", "date")


def check_sql_hash(function: str, fields: Mapping[str, str]) -> None:
    """Check an expression against the hash fields (name -> Spark type) of a table.

    :raises InvalidRule: for the first word that is not allowed, or the type that has no stable meaning.
    """
    for name, text in fields.items():
        if parse_type(text).kind not in _STABLE_TYPES:
            raise InvalidRule(
                f"The hash field {name!r} of type {text!r} cannot be used in a SQL hash function: what such a value "
                "looks like depends on the session.",
                hint="Hash string, integer, boolean, date or binary columns, or use xxhash64.",
            )
    columns = [name for kind, name in _sql_tokens(function) if kind == "column"]
    known = {name.lower() for name in fields}
    unknown = [name for name in columns if name.lower() not in known]
    if unknown:
        raise _refused_sql(function, f"{unknown[0]!r} is not a hash field ({', '.join(fields)}), nor an allowed word")
    if not columns:
        raise _refused_sql(function, "it names no hash field (a name that is a word of SQL too needs backquotes)")


def rendered_sql_hash(function: str, columns: Mapping[str, str]) -> str:
    """Return the expression for Spark, with each hash field replaced by its value in ``columns``."""
    by_name = {name.lower(): text for name, text in columns.items()}
    return "".join(
        f"({by_name[token.lower()]})" if kind == "column" else token for kind, token in _sql_tokens(function)
    )


def _sql_tokens(function: str) -> Sequence[tuple[str, str]]:
    """Return (kind, text) of each token; names of columns without their backquotes."""
    text = function.removeprefix(SQL)
    if len(text) > _MAX_SQL_LENGTH:
        raise _refused_sql(function[:40] + "…", f"it is longer than {_MAX_SQL_LENGTH} characters")
    tokens: list[tuple[str, str]] = []
    position = 0
    while position < len(text):
        token = _SQL_TOKEN.match(text, position)
        if token is None or (text.startswith("--", position)):
            raise _refused_sql(function, f"{text[position : position + 10]!r} is not allowed")
        kind, word = str(token.lastgroup), token[0]
        position = token.end()
        if kind == "quoted":
            kind, word = "column", word[1:-1].replace("``", "`")
        elif kind == "word":
            called = text[position:].lstrip().startswith("(")
            if called and word.lower() not in _SQL_FUNCTIONS | _SQL_KEYWORDS:
                raise _refused_sql(function, f"the function {word!r} is not among those that always give the same")
            kind = "word" if called or word.lower() in _SQL_KEYWORDS else "column"
        tokens.append((kind, word))
    return tokens


def _refused_sql(function: str, reason: str) -> InvalidRule:
    return InvalidRule(
        f"The hash function {function!r} cannot be used: {reason}.",
        hint=f"Use operators, CASE, CAST and: {', '.join(sorted(_FUNCTIONS))}.",
    )


# --- hashing on the driver --------------------------------------------------------------------------------------------


DEFAULT_HASH = "xxhash64"
SPARK_BUCKETS = "murmur3"
"""The hash by which Spark itself deals rows when it shuffles them, and finds them in its buckets; of indexes only."""

_SEED = 42
_INT32 = 0xFFFFFFFF
_MAX_LONG_DIGITS = 18
# BigDecimal.toString turns to exponents from the seventh decimal place on, and then depends on the Spark
# version.
_MAX_PLAIN_SCALE = 6

# From the normalized values and their types to a bucket below the count.
BucketFunction = Callable[[Sequence[Any], Sequence[ColumnType], int], int]


def bucket_id(
    values: Sequence[Any], count: int, hash_function: str = DEFAULT_HASH, types: Sequence[str] | None = None
) -> int:
    """Return the bucket of one key, from 0 to ``count`` - 1.

    ::

        bucket_id(["k1", 7], 16, types=["string", "int"])  # 5

    :param values: the values of the hash fields, in the order of the table's ``hash_fields``.
    :param count: buckets of the partition.
    :param hash_function: ``xxhash64`` is Spark's ``pmod(xxhash64(...), count)``; ``java`` is ``(List.hashCode() &
        0x7FFFFFFF) % count`` over the fields as strings, as Hudi's bucket index takes it; a user's class by its name,
        if it has a twin on the driver.
    :param types: the columns' Spark types. Without them an ``int`` is a bigint and a naive ``datetime`` a timestamp, as
        Spark infers them; the hash of an int column is another one, so give types where they are known.
    :raises InvalidRule: for a count that is not a positive integer or is too large, for an unknown function, or one
        that only Spark computes (:func:`on_driver`).
    :raises InvalidSchema: for a value that is not one of its type.
    """
    if isinstance(values, (str, bytes)) or not isinstance(values, Sequence):
        raise InvalidInput(
            f"The values of the hash fields were given as {values!r}, not as a sequence.",
            hint="Give one value per hash field, for instance bucket_id(['k1'], 8).",
        )
    if not values:
        raise InvalidInput("No values to hash were given.", hint="Give one value for each hash field.")
    check_bucket_count(count)
    columns = column_types(values, types)
    normalized = [normalize(value, column) for value, column in zip(values, columns, strict=True)]
    function = _driver_function(hash_function)
    if function is None:
        raise InvalidRule(
            f"The hash function {hash_function!r} is computed by Spark only.",
            hint="Ask spark_apps.mergetree.buckets.compute_buckets().",
        )
    return function(normalized, columns, count)


def check_bucket_count(count: object, what: str = "The bucket count") -> int:
    """Return the count itself, if it can be one.

    :raises InvalidRule: unless it is an integer from 1 to 100,000.
    """
    if isinstance(count, bool) or not isinstance(count, int):
        raise InvalidRule(f"{what} is {count!r}, not an integer.", hint=f"Give an integer from 1 to {MAX_BUCKETS:,}.")
    if not 1 <= count <= MAX_BUCKETS:
        raise InvalidRule(
            f"{what} is {count}, which is not between 1 and {MAX_BUCKETS:,}.",
            hint="Each bucket of each partition is a file group; a few 100 MB each are good.",
        )
    return count


def on_driver(hash_function: str) -> bool:
    """Test whether :func:`bucket_id` can compute the function.

    :raises InvalidRule: if there is none of that name.
    """
    return _driver_function(hash_function) is not None


def is_known(hash_function: str) -> bool:
    """Test whether this process has the code of a function.

    Without it rows can be read, but none found by its bucket.
    """
    try:
        _driver_function(hash_function)
    except InvalidRule:
        return False
    return True


def _driver_function(name: str) -> BucketFunction | None:
    if name in _FUNCTIONS:
        return _FUNCTIONS[name]
    if name == SPARK_BUCKETS:
        return _murmur3_bucket
    if name.startswith(SQL):
        return None
    if name.startswith(RANGES):
        return partial(range_bucket, name)
    function = FUNCTIONS.find(name)
    return _checked(name, function) if function.on_driver else None


def _checked(name: str, function: HashFunction) -> BucketFunction:
    def bucket(values: Sequence[Any], columns: Sequence[ColumnType], count: int) -> int:
        bucket = function.bucket(values, [column.text for column in columns], count)
        if not isinstance(bucket, int) or not 0 <= bucket < count:
            raise InvalidRule(f"The hash function {name!r} gave the bucket {bucket!r} of {count}.", hint="Mend it.")
        return bucket

    return bucket


def check_hash(fields: Mapping[str, str], hash_function: str) -> None:
    """Refuse a function that is not known, or that cannot place these fields (name -> Spark type).

    :raises InvalidRule: if there is no such function, or its text is none.
    :raises InvalidSchema: if a field is of a type that it cannot place.
    """
    if hash_function.startswith(SQL):
        check_sql_hash(hash_function, fields)
    elif hash_function not in _FUNCTIONS:
        FUNCTIONS.find(hash_function)
    check_hash_types(list(fields.values()), hash_function)


def check_hash_types(types: Sequence[str], hash_function: str) -> None:
    """Refuse hash fields whose type the function cannot place alike on the driver and in Spark.

    :raises InvalidSchema: if there is one, naming its type.
    """
    for column in column_types(types, types):
        if column.kind in ("char", "other") or (hash_function == "java" and not _has_java_string(column)):
            raise InvalidSchema(
                f"A hash field of type {column.text!r} cannot be used with the {hash_function!r} hash.",
                hint="Hash a string, integer, boolean, date, timestamp or decimal column instead"
                + (", or use xxhash64." if hash_function == "java" else "."),
            )


# --- xxhash64 -----------------------------------------------------------------------------------------------


def _xxhash64_bucket(values: Sequence[Any], columns: Sequence[ColumnType], count: int) -> int:
    hashed = spark_xxhash64(values, columns)
    return hashed % count  # Python's % of a positive modulus is Spark's pmod


def spark_xxhash64(values: Sequence[Any], columns: Sequence[ColumnType]) -> int:
    """Return Spark's ``xxhash64`` of normalized values, signed. Each seeds the next; a null leaves the seed."""
    import xxhash

    seed = _SEED
    for value, column in zip(values, columns, strict=True):
        if value is not None:
            seed = xxhash.xxh64_intdigest(_hashed_bytes(value, column), seed=seed)
    return seed - (1 << 64) if seed >= 1 << 63 else seed


def _hashed_bytes(value: Any, column: ColumnType) -> bytes:
    """Return what Spark feeds its hash: 4 or 8 little-endian bytes for what is stored so, else the bytes."""
    match column.kind:
        case "string":
            return value.encode("utf-8")
        case "binary":
            return value
        case "boolean" | "tinyint" | "smallint" | "int":
            return int(value).to_bytes(4, "little", signed=True)
        case "bigint":
            return value.to_bytes(8, "little", signed=True)
        case "date":
            return days(value).to_bytes(4, "little", signed=True)
        case "timestamp" | "timestamp_ntz":
            return micros(value).to_bytes(8, "little", signed=True)
        case "float":
            return b"\x00\x00\xc0\x7f" if value != value else struct.pack("<f", value)  # Java has one NaN
        case "double":
            return b"\x00\x00\x00\x00\x00\x00\xf8\x7f" if value != value else struct.pack("<d", value)
        case "decimal":
            return _decimal_bytes(value, column)
    raise InvalidSchema(f"Values of type {column.text!r} cannot be hashed.", hint="Choose other hash fields.")


def _decimal_bytes(value: decimal.Decimal, column: ColumnType) -> bytes:
    digits = unscaled(value, column)
    if column.precision <= _MAX_LONG_DIGITS:
        return digits.to_bytes(8, "little", signed=True)
    # BigInteger.toByteArray: big-endian, two's complement, as short as its sign allows.
    length = (digits if digits >= 0 else ~digits).bit_length() // 8 + 1
    return digits.to_bytes(length, "big", signed=True)


# --- murmur3 ------------------------------------------------------------------------------------------------


def _murmur3_bucket(values: Sequence[Any], columns: Sequence[ColumnType], count: int) -> int:
    """Return the bucket by Spark's ``pmod(hash(...), count)``. Each value seeds the next; a null leaves the seed."""
    seed = _SEED
    for value, column in zip(values, columns, strict=True):
        if value is not None:
            seed = _murmur3(_hashed_bytes(value, column), seed)
    return (seed - (1 << 32) if seed >= 1 << 31 else seed) % count


def _murmur3(data: bytes, seed: int) -> int:
    """Return MurmurHash3 for 32 bits, unsigned, as Spark has it: bytes behind the last four count as a word each."""
    whole = len(data) & ~3
    hashed = seed & _INT32
    for word in (
        *struct.unpack(f"<{whole // 4}I", data[:whole]),
        *struct.unpack(f"{len(data) - whole}b", data[whole:]),
    ):
        mixed = (word * 0xCC9E2D51) & _INT32
        mixed = (((mixed << 15) | (mixed >> 17)) * 0x1B873593) & _INT32
        hashed ^= mixed
        hashed = ((((hashed << 13) | (hashed >> 19)) & _INT32) * 5 + 0xE6546B64) & _INT32
    hashed ^= len(data)
    hashed = ((hashed ^ (hashed >> 16)) * 0x85EBCA6B) & _INT32
    hashed = ((hashed ^ (hashed >> 13)) * 0xC2B2AE35) & _INT32
    return hashed ^ (hashed >> 16)


# --- java ---------------------------------------------------------------------------------------------------


def _java_bucket(values: Sequence[Any], columns: Sequence[ColumnType], count: int) -> int:
    check_hash_types([column.text for column in columns], "java")
    hashed = 1
    for value, column in zip(values, columns, strict=True):
        hashed = (31 * hashed + _java_hash(value, column)) & 0xFFFFFFFF
    return (hashed & 0x7FFFFFFF) % count


def _java_hash(value: Any, column: ColumnType) -> int:
    """Return ``String.hashCode()`` over UTF-16 code units, modulo 2**32; null is 0."""
    if value is None:
        return 0
    units = java_string(value, column).encode("utf-16-be")
    hashed = 0
    for position in range(0, len(units), 2):
        hashed = (31 * hashed + (units[position] << 8) + units[position + 1]) & 0xFFFFFFFF
    return hashed


def _has_java_string(column: ColumnType) -> bool:
    if column.kind == "decimal":
        return 0 <= column.scale <= _MAX_PLAIN_SCALE
    return column.is_integer or column.kind in ("string", "boolean", "date", "timestamp", "timestamp_ntz")


def java_string(value: Any, column: ColumnType) -> str:
    """Return the string whose hash code is taken: Spark's cast to string; of timestamps microseconds since 1970.

    Microseconds, because the cast of a timestamp depends on the session's time zone.
    """
    match column.kind:
        case "boolean":
            return "true" if value else "false"
        case "date":
            return value.isoformat()
        case "timestamp" | "timestamp_ntz":
            return str(micros(value))
        case "decimal":
            return f"{value:f}"
    return str(value)


_FUNCTIONS: dict[str, BucketFunction] = {"xxhash64": _xxhash64_bucket, "java": _java_bucket}


# --- many keys at once, on Arrow columns ------------------------------------------------------------------------------


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
    """Return the ``xxhash64`` bucket of each row as a numpy array; ``None`` for a type that it cannot hash.

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


def hashes_of(values: Any, kind: ColumnType) -> Any:
    """Return Spark's ``xxhash64`` of each value of an Arrow array without nulls, as a numpy array of unsigned numbers.

    :param values: of the type in which Spark exchanges such values.
    """
    import numpy as np

    match kind.kind:
        case "boolean":
            numbers = values.cast("int8").to_numpy(zero_copy_only=False).astype("<i4")
        case "float" | "double":
            numbers = values.to_numpy(zero_copy_only=False)
            numbers = np.where(np.isnan(numbers), numbers.dtype.type(np.nan), numbers)  # Java has one NaN
        case "decimal":
            return _hashes_of_decimals(values, kind)
        case _:
            hashed = np.full(len(values), _SEED, np.uint64)
            with np.errstate(over="ignore"):
                _mix_in(hashed, values, kind.kind)
            return hashed
    return hashes_of_numbers(numbers)


def hashes_of_numbers(numbers: Any) -> Any:
    """Return Spark's ``xxhash64`` of numbers of four or eight bytes, as a numpy array of unsigned numbers."""
    import numpy as np

    matrix = np.ascontiguousarray(numbers).view(np.uint8).reshape(len(numbers), numbers.dtype.itemsize)
    return hashes_of_bytes(matrix)


def hashes_of_bytes(matrix: Any) -> Any:
    """Return Spark's ``xxhash64`` of the rows of a matrix of bytes, as a numpy array of unsigned numbers."""
    import numpy as np

    with np.errstate(over="ignore"):
        return _xxhash64(matrix, np.full(len(matrix), _SEED, np.uint64))


def _hashes_of_decimals(values: Any, kind: ColumnType) -> Any:
    """Return the hashes of decimals, each different one hashed once."""
    import numpy as np

    encoded = values.dictionary_encode()
    known = [spark_xxhash64([normalize(value, kind)], [kind]) for value in encoded.dictionary.to_pylist()]
    return np.array(known, np.int64).view(np.uint64)[encoded.indices.to_numpy(zero_copy_only=False)]


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

    Each length has those values as a numpy array of ``S…``, and their positions. Empty values are one zero byte each.
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


_ROWS_AT_ONCE = 1 << 14
"""Whose hashes, and what they are made from, stay in a core's own cache."""


def _xxhash64(matrix: Any, seeds: Any) -> Any:
    """Return XXH64 of the rows of a matrix of bytes, each with its own seed."""
    import numpy as np

    hashed = np.empty(len(matrix), np.uint64)
    for start in range(0, len(matrix), _ROWS_AT_ONCE):
        some = slice(start, start + _ROWS_AT_ONCE)
        hashed[some] = _xxhash64_of_some(matrix[some], seeds[some])
    return hashed


def _xxhash64_of_some(matrix: Any, seeds: Any) -> Any:
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
