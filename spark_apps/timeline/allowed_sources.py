"""Rules for sources: what a registration may give, what a log may say of it, and which sources the reader allows.

A log is input: it names the location that rows are read from with the reader's own rights, and the options that Spark
and ``pyiceberg`` are given. So options are taken by name, from lists of those that only say how a file is read; and a
source is read where its log is at the default place beside it, where the reader named both, or below the
``source_roots`` of the reader's storage options. Nothing is opened by this module.

What a registration gives is checked by the same lists when it goes into the log, and holds no secrets and nothing that
would change which rows there are.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote

from spark_apps.storage.errors import InvalidInput, InvalidName, SourceNotAllowed
from spark_apps.storage.printing import printable
from spark_apps.storage.store import SOURCE_ROOTS
from spark_apps.storage.unwritten import check_unwritten
from spark_apps.timeline.catalog_names import CatalogName
from spark_apps.timeline.locations import Location, locate
from spark_apps.timeline.model import SourceDefinition
from spark_apps.timeline.reader_roots import is_below, source_roots, warehouse_root

FORMATS = ("parquet", "orc", "json", "csv", "delta", "iceberg", "hudi")
PLAIN_FORMATS = FORMATS[:4]

CATALOG = "catalog"
IDENTIFIER = "identifier"
READER = "reader"
"""Option of a table that a catalog of Spark's sessions names: ``spark``. Else ``pyiceberg`` knows the catalog."""
CATALOG_TYPES = ("rest", "hive", "glue", "dynamodb", "sql", "bigquery")

_ANY_FILE = {"recursivefilelookup", "compression"}
_TEXT_FILE = _ANY_FILE | {
    "columnnameofcorruptrecord", "dateformat", "enabledatetimeparsingfallback", "encoding", "charset", "linesep",
    "locale", "mode", "multiline", "samplingratio", "singlevariantcolumn", "timestampformat", "timestampntzformat",
    "timezone",
}  # fmt: skip
READER_OPTIONS: dict[str, frozenset[str]] = {
    "parquet": frozenset(_ANY_FILE | {"mergeschema", "datetimerebasemode", "int96rebasemode"}),
    "orc": frozenset(_ANY_FILE | {"mergeschema"}),
    "json": frozenset(
        _TEXT_FILE
        | {
            "allowbackslashescapinganycharacter", "allowcomments", "allownonnumericnumbers", "allownumericleadingzero",
            "allownumericleadingzeros", "allowsinglequotes", "allowunquotedcontrolchars", "allowunquotedfieldnames",
            "dropfieldifallnull", "ignorenullfields", "prefersdecimal", "primitivesasstring", "useunsaferow",
        }
    ),
    "csv": frozenset(
        _TEXT_FILE
        | {
            "chartoescapequoteescaping", "columnpruning", "comment", "delimiter", "emptyvalue", "enforceschema",
            "escape", "escapequotes", "header", "ignoreleadingwhitespace", "ignoretrailingwhitespace", "inferschema",
            "inputbuffersize", "maxcharspercolumn", "maxcolumns", "maxmalformedlogperpartition", "nanvalue",
            "negativeinf", "nullvalue", "positiveinf", "preferdate", "quote", "quoteall", "sep",
            "unescapedquotehandling",
        }
    ),
    "delta": frozenset({CATALOG, IDENTIFIER}),
    "hudi": frozenset({CATALOG, IDENTIFIER}),
    "iceberg": frozenset(
        {CATALOG, IDENTIFIER, READER, "catalog.type", "catalog.uri", "catalog.warehouse", "catalog.prefix"}
    ),
}  # fmt: skip
"""Format -> options that a log may hold, in lower case. Any other one would become a setting of Hadoop's (Spark hands
on what it does not know), or a property of ``pyiceberg``'s: both name classes to load and servers to call."""

_ADDRESSES = ("catalog.uri",)
# The options by which CSV's parser reserves memory.
_MAX_VALUES = {"maxcolumns": 1_000_000, "maxcharspercolumn": 1 << 26, "inputbuffersize": 1 << 26}
_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,127}")
_VERSIONS = {"delta": re.compile(r"[0-9]{1,19}"), "iceberg": re.compile(r"-?[0-9]{1,19}"),
             "hudi": re.compile(r"[0-9]{1,19}")}  # fmt: skip
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_BLANK = re.compile(r"[\x00-\x20\x7f-\xa0\u2028\u2029]")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:")
_SLASH = re.compile(r"[/\\]")
_MAX_QUOTED = 5
"""How often a path may be quoted anew. A library undoes it once or twice; names quoted by Hive are quoted once more."""

_NAMED: set[tuple[str, str]] = set()
"""(log, address of its source or of its catalog) that the code of this process named together: it registered the one
in the other, or opened the one by the other."""


# --- what a log may say -----------------------------------------------------------------------------------------


def check_options(form: str, options: Mapping[str, str]) -> None:
    """Check the options of a source against those that its format may have.

    They are checked when the source is registered, and again whenever a log is read.

    :raises InvalidInput: if one is not, or has a value that cannot be; names the first.
    """
    if form not in FORMATS:
        raise InvalidInput(f"There is no source format {form!r}.", hint=f"Use one of: {', '.join(FORMATS)}.")
    known = READER_OPTIONS[form]
    for name, value in options.items():
        # Spark takes its options in any case, pyiceberg does not.
        plain = name.lower() if form in PLAIN_FORMATS else name
        if plain not in known:
            raise InvalidInput(
                f"The option {name[:100]!r} is not one of a source of format {form!r}.",
                hint=f"Known are: {', '.join(sorted(known)) or 'none'}. Settings of the store go into storage_options, "
                "those of an Iceberg catalog into pyiceberg's own configuration, where the source is read.",
            )
        if plain in _MAX_VALUES and not (re.fullmatch(r"-1|[0-9]{1,9}", value) and int(value) <= _MAX_VALUES[plain]):
            raise InvalidInput(
                f"The option {name}={value[:40]!r} is no number up to {_MAX_VALUES[plain]}.", hint="Give a smaller one."
            )
    if form in ("delta", "iceberg", "hudi"):
        _check_catalog(options)


def check_source(source: SourceDefinition) -> None:
    """Check what a log says of a source: its format, location, version and options.

    :raises InvalidInput: if something cannot be, naming it.
    """
    check_options(source.format, source.options)
    if _CONTROL.search(source.location) or ".." in source.location.split("/"):
        raise InvalidName(
            f"The location {source.location[:200]!r} of a source leads upwards or holds control characters."
        )
    locate(source.location)
    known = _VERSIONS.get(source.format)
    if source.version is not None and (known is None or known.fullmatch(source.version) is None):
        raise InvalidInput(f"{source.version[:40]!r} is no version of a source of format {source.format!r}.")


def _check_catalog(options: Mapping[str, str]) -> None:
    kind = options.get("catalog.type")
    if kind is not None and kind not in CATALOG_TYPES:
        raise InvalidInput(f"There is no catalog type {kind[:40]!r}.", hint=f"Use one of: {', '.join(CATALOG_TYPES)}.")
    if options.get(READER, "spark") != "spark":
        raise InvalidInput(f"There is no reader {options[READER][:40]!r} of Iceberg tables.", hint="Use 'spark'.")
    if CATALOG in options and _WORD.fullmatch(options[CATALOG]) is None:
        raise InvalidName(
            f"{options[CATALOG][:100]!r} cannot be the name of a catalog.", hint="Use letters and digits."
        )


# --- what a reader allows ---------------------------------------------------------------------------------------


def name_together(log: str, source: SourceDefinition | str) -> None:
    """Note that this process's own code named a log and its source together, which allows the source."""
    if isinstance(source, str):
        _NAMED.add((log, source))
        return
    _NAMED.update((log, address) for address in (source.location, *_addresses(source).values()))


def check_allowed(log: str, source: SourceDefinition, options: Mapping[str, Any] | None) -> bool:
    """Check that a source may be read for a log that names it.

    :param log: address of the log's folder.
    :param options: the reader's storage options, with their ``source_roots``.
    :return: whether the log is believed about the name in a catalog alone, and the catalog says where the table is.
    :raises SourceNotAllowed: if the reader does not allow it; says how to.
    :raises InvalidInput: for what no log may say.
    """
    check_source(source)
    location = locate(source.location)
    allowed = _is_allowed(location.base, log, options, (source.location,))
    by_name = not allowed and _is_named_log(source, log, options)
    if not _is_default_log(location, log) and not allowed and not by_name:
        raise _not_allowed(log, f"the source {source.location}, beside which it is not, and nothing", location.base)
    for name, address in _addresses(source).items():
        catalog = source.options.get(CATALOG, "")
        if not _is_allowed(address, log, options) and _configured(catalog, name) != address:
            raise _not_allowed(log, f"the catalog {catalog!r} at {address}, and nothing", address)
    return by_name


def check_files(
    paths: Iterable[str], source: SourceDefinition, options: Mapping[str, Any] | None, log: str = ""
) -> None:
    """Check that files are inside of their source, or below one of the reader's ``source_roots``.

    :param paths: as a log, or the metadata of a Delta or Iceberg table, names them.
    :raises SourceNotAllowed: naming one that is elsewhere, or that readers would look for in different places.
    """
    base = locate(source.location).base
    if base.endswith(".metadata.json"):
        base = base.rpartition("/")[0].removesuffix("/metadata")
    linked = source.format in PLAIN_FORMATS  # whose links Spark follows, and so do its readers
    inside, roots = Folder(base, linked), [Folder(root, linked) for root in source_roots(options)]
    for path in paths:
        if not inside.holds(path) and not any(root.holds(path) for root in roots):
            what = f"the file {printable(path[:300])}, outside of the source {source.location}, and nothing"
            raise _not_allowed(log, what, path)


class Folder:
    """A folder, and which addresses lead into it for everything that opens them.

    Spark's file systems take an address literally; ``deltalake`` as a browser does: without tabs and line ends, with
    ``\\`` for ``/``, ``%2e`` for a dot, schemes in any case, a host before a local path; ``pyiceberg`` as Python's
    ``urlsplit`` does. So an address that they could read in two ways leads nowhere.

    :param base: as :attr:`Location.uri` is.
    :param linked: whether symbolic links of a local disk may lead out of it.
    """

    def __init__(self, base: str, linked: bool = False) -> None:
        self._base = base.rstrip("/")
        self._linked = linked or "://" in base
        self._real: dict[str, str] = {}

    def holds(self, path: str) -> bool:
        """Test whether an address is in the folder, or is the folder."""
        address = address_of(path)
        return address is not None and is_below(address, self._base) and (self._linked or self._links_stay(address))

    def key(self, path: str) -> str | None:
        """Return a path of a Delta log, which is quoted and mostly relative to the folder, as a key below the folder.

        :return: ``None`` if it leads elsewhere.
        """
        if address_of(path) is None:
            return None
        plain, bare = unquote(path), path.strip()
        absolute = bare.startswith(("/", "\\")) or _SCHEME.match(bare) is not None
        address = address_of(plain if absolute else f"{self._base}/{plain}")
        if address is None or not address.startswith(f"{self._base}/"):
            return None
        return address[len(self._base) :].lstrip("/") if self._linked or self._links_stay(address) else None

    def _links_stay(self, path: str) -> bool:
        """Test whether the symbolic links on the way to a local file stay in the folder."""
        if os.path.islink(path):  # noqa: PTH114 - of thousands of files: a Path takes longer than the call
            return is_below(os.path.realpath(path), self._realpath(self._base))
        folder, _, name = path.rstrip("/").rpartition("/")
        return is_below(f"{self._realpath(folder)}/{name}", self._realpath(self._base))

    def _realpath(self, folder: str) -> str:
        real = self._real.get(folder)
        if real is None:
            real = self._real[folder] = os.path.realpath(folder or "/").rstrip("/")
        return real


def address_of(path: str) -> str | None:
    """Return a file's address in the form of :attr:`Location.uri`; ``None`` if it leads upwards, to whatever reader."""
    if _CONTROL.search(path) or _leads_upwards(path):
        return None
    if path.startswith("file:"):
        rest = path.removeprefix("file:")
        if rest.startswith("//") and not rest.startswith("///"):
            return None  # a host, which one reader drops and another takes for the first folder
        return "/" + rest.lstrip("/")
    scheme, sign, rest = path.partition("://")
    return f"s3://{rest}" if sign and scheme in ("s3a", "s3n") else path


def _leads_upwards(path: str) -> bool:
    """Test whether a part of a path is ``..``, however it is written."""
    for _ in range(_MAX_QUOTED):
        if ".." in _BLANK.sub("", path) and any(_BLANK.sub("", part) == ".." for part in _SLASH.split(path)):
            return True
        plain = unquote(path) if "%" in path else path
        if plain == path:
            return False
        path = plain
    return True  # nothing is quoted so deep


def _addresses(source: SourceDefinition) -> dict[str, str]:
    """Return the addresses of the catalogs that a log names, by option."""
    return {name: source.options[name] for name in _ADDRESSES if name in source.options}


def _is_default_log(location: Location, log: str) -> bool:
    """Test whether a log is at the default place of a source's log."""
    try:
        return bool(location.default_log() == log)
    except InvalidInput:  # the source is in no folder
        return False


def _is_named_log(source: SourceDefinition, log: str, options: Mapping[str, Any] | None) -> bool:
    """Test whether a log is where the reader's warehouse keeps that of the catalog's table which it names."""
    root = warehouse_root(options)
    if root is None or CATALOG not in source.options or IDENTIFIER not in source.options or source.identity is None:
        return False
    try:
        name = CatalogName.of(source.options[CATALOG], source.options[IDENTIFIER])
    except InvalidName:  # of a table that was registered by its place
        return False
    return log == f"{root}/{name.log_folder(source.identity)}"


def _is_allowed(address: str, log: str, options: Mapping[str, Any] | None, also: tuple[str, ...] = ()) -> bool:
    if any((log, one) in _NAMED for one in (address, *also)):
        return True
    return any(is_below(address, root) for root in source_roots(options)) and ".." not in address.split("/")


def _configured(catalog: str, name: str) -> str | None:
    """Return the setting of a catalog in ``pyiceberg``'s own configuration, where that is installed."""
    try:
        from pyiceberg.utils.config import Config
    except ImportError:
        return None
    setting = (Config().get_catalog_config(catalog) or {}).get(name.partition(".")[2])
    return setting if isinstance(setting, str) else None


def _not_allowed(log: str, what: str, address: str) -> SourceNotAllowed:
    return SourceNotAllowed(
        f"{f'The log {log}' if log else 'The table'} names {what} allows it to be read for that.",
        hint=f'Add "{address[:300]}", or a folder above it, to {SOURCE_ROOTS} of the table connection, or of the '
        "storage options; or load the source by its own address, with its index_root and name, if it was given them.",
    )


# --- what a registration may give -------------------------------------------------------------------------------------


RECURSIVE = "recursiveFileLookup"
MERGE_SCHEMA = "mergeSchema"

# Spark's own listing is not used, and files or rows that are passed over in silence would be missing from answers.
_REFUSED = {
    "pathglobfilter": "Write the location as a glob instead.",
    "modifiedbefore": "Files are chosen by the log, not by their time.",
    "modifiedafter": "Files are chosen by the log, not by their time.",
    "basepath": "Partition columns are those below the part of the location without a pattern.",
    "ignoremissingfiles": "A missing file is always an error.",
    "ignorecorruptfiles": "A damaged file is always an error.",
    "path": "Give the location as the first argument.",
    "paths": "Give the location as the first argument.",
}


def given_options(form: str, options: Mapping[str, object] | None) -> dict[str, str]:
    """Return the options as they go into the log.

    :raises InvalidInput: for an unknown format, for an option that looks like a secret, or one that is refused, or that
        is none of the format's (:data:`spark_apps.timeline.allowed_sources.READER_OPTIONS`).
    """
    check_options(form, {})
    checked: dict[str, str] = {}
    for name, value in (options or {}).items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        check_unwritten(
            "option", {name: value}, "Give it in storage_options, which are never written down, or in the environment."
        )
        if name.lower() in _REFUSED:
            raise InvalidInput(f"The option {name!r} is not taken for a source.", hint=_REFUSED[name.lower()])
        if name.lower() == "mode" and text.upper() == "DROPMALFORMED":
            raise InvalidInput(
                "The option mode=DROPMALFORMED is not taken for a source: which rows it drops depends on the columns "
                "that a query reads.",
                hint="Use mode=PERMISSIVE or FAILFAST.",
            )
        checked[name] = text
    check_options(form, checked)
    return checked


def is_set(options: Mapping[str, str], name: str) -> bool:
    """Return whether a true-or-false option is true; its name's case does not matter, as in Spark."""
    return any(key.lower() == name.lower() and value.lower() == "true" for key, value in options.items())
