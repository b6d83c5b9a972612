"""What a secret is: by the name of a setting, option or variable, and by what stands in its value.

Everything that sorts, hides or refuses secrets asks here, so that the command line, the environment, files, logs, error
texts, Spark's page and Airflow's agree. When in doubt a thing is a secret. No Spark, no Airflow, no network.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any

from spark_apps.storage.errors import InvalidInput

STARS = "***"
SHORTEST = 4
"""A shorter value is not looked for in texts: it would tear holes into ordinary words."""

# --- names --------------------------------------------------------------------------------------------------------

HADOOP = r"(?i)^spark\.hadoop\."
_ENVIRONMENT_OF = re.compile(
    r"(?i)^spark\.(?:executorEnv|yarn\.appMasterEnv|kubernetes\.(?:driverEnv|executorEnv)|mesos\.driverEnv)\."
)
# Kubernetes' own references: names of secrets, paths they are mounted at, labels.
_REFERENCE = re.compile(
    r"(?i)^spark\.kubernetes\.(?:driver\.|executor\.)?"
    r"(?:secretKeyRef\.|secrets\.|(?:service\.)?label\.|(?:service\.)?annotation\.|node\.selector\.|volumes\.)"
)
_CATALOG = re.compile(r"(?i)^spark\.sql\.catalog\.[^.]+(?:\.|$)")
_BUCKET = re.compile(r"(?i)^fs\.s3a\.bucket\.[^.]+\.")
_AZURE = re.compile(
    r"(?i)^fs\.azure\.("
    r"account\.keyprovider|account\.key|account\.auth\.type|account\.hns\.enabled|account\.oauth\.provider\.type"
    r"|account\.oauth2\.(?:client\.(?:id|secret|endpoint)|user\.(?:name|password)|refresh\.token\.endpoint"
    r"|refresh\.(?:token|endpoint)|msi\.(?:endpoint|tenant|authority)|token\.file)"
    r"|sas\.fixed\.token|sas\.token\.provider\.type)(?:\.|$)"
)
_WASB_SAS = re.compile(r"(?i)^fs\.azure\.sas\.(?!expiry|local|secure|service)[^.]+\.[^.]+")
_ADLS = re.compile(r"(?i)^(?:.*\.)?adls\.(sas-token-expires-at-ms|sas-token|connection-string)(?:\.|$)")
_ACCOUNT_HOST = re.compile(r"(?i)\.[^.]+\.(?:dfs|blob|file|queue|table)\.[a-z0-9.-]+$")

_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")

# Names of settings of Hadoop, Spark and Parquet which sound like secrets and are none.
_KNOWN_OPEN = {
    "spark.kerberos.renewal.credentials", "hadoop.security.authorization", "parquet.encryption.footer.key",
    "parquet.encryption.uniform.key", "parquet.encryption.column.keys", "google_application_credentials",
    "application_credentials",
}  # fmt: skip
_OF_THE_SHELL = {"PWD", "OLDPWD"}

_OPEN_TAILS = {
    "file", "files", "path", "paths", "dir", "directory", "folder", "location", "keyfile", "endpoint", "endpoints",
    "host", "hostname", "port", "url", "urls", "uri", "server", "provider", "providers", "class", "classes", "type",
    "types", "name", "names", "username", "enabled", "enable", "disabled", "required", "timeout", "ttl", "interval",
    "duration", "lifetime", "expiry", "expires", "expiration", "ms", "millis", "seconds", "secs", "minutes", "hours",
    "days", "length", "size", "bits", "algorithm", "alg", "format", "mode", "policy", "version", "ratio", "wait",
    "attempts", "retries", "count", "limit", "threshold", "ip", "fallback", "renewer", "issuer", "audience", "scope",
    "scopes", "region", "arn", "regex", "pattern", "separator", "delimiter", "column", "columns", "ref", "mount",
    "service", "method", "strategy", "owner", "manager", "factory", "impl", "source", "id", "ids", "order", "index",
    "generator", "store", "keystore", "truststore", "resolver", "verifier", "validation", "codec", "cache", "alias",
    "context",
}  # fmt: skip
"""Last words of names that tell where a secret is, of what kind or for how long, and not the secret."""

_STRONG = (
    "password", "passwd", "passphrase", "passcode", "secret", "credential", "authorization", "apikey", "accesskey",
    "accountkey", "privatekey", "sharedkey", "encryptionkey", "signature", "connectionstring", "fernet", "webhook",
)  # fmt: skip
"""Parts of words which are enough wherever they stand."""

_WORDS = {"bearer", "sas", "sig", "jwt", "creds", "cred", "dsn", "cookie", "cookies", "jaas", "pwd", "keyphrase"}
_LAST_WORDS = {"pass", "pw", "psw", "otp", "pin"}
_COMPOUNDS = {
    ("auth", "header"), ("connection", "string"), ("conn", "string"), ("user", "info"), ("basic", "auth"),
    ("keyfile", "dict"), ("keyfile", "json"), ("service", "account", "json"), ("pass", "word"), ("pass", "phrase"),
}  # fmt: skip

_SECRET_KEYS = {
    "access", "account", "secret", "private", "api", "encryption", "decryption", "customer", "provided", "sas",
    "master", "fixed", "shared", "storage", "session", "signing", "auth", "authentication", "subscription", "ssh",
    "pgp", "gpg", "hmac", "aes", "rsa", "cipher", "symmetric", "security", "app", "application",
    "consumer", "client", "license", "deploy", "admin", "root", "sse", "vault", "unseal", "recovery", "host", "service",
}  # fmt: skip
_OPEN_KEYS = {
    "record", "primary", "foreign", "partition", "sort", "cluster", "clustering", "row", "hash", "map", "group",
    "grouping", "order", "ordering", "join", "merge", "index", "public", "object", "column", "kms", "routing",
    "message", "natural", "business", "surrogate", "composite", "unique", "dedup", "bucket", "shard", "distribution",
    "dist", "lookup", "search", "document", "doc", "field", "config", "conf", "setting", "property", "option",
    "idempotency", "label", "tag", "event", "node", "lock", "state", "cache", "metadata", "header", "asset", "xcom",
}  # fmt: skip


def is_secret(name: str) -> bool:
    """Whether a setting, storage option, reader option, property or variable of that name holds a secret.

    What decides is the setting's own name: not that of the account, bucket, catalog or variable list within it.
    """
    own = _own_name(name)
    if own is None or own.lower() in _KNOWN_OPEN:
        return False
    words = _words(own)
    if not words:
        return False
    if words[-1] in _OPEN_TAILS and not _is_secret_after_all(words):
        return False
    return _says_so(words) or _names_a_key(words)


def _words(own: str) -> list[str]:
    words = [word.lower() for word in _PARTS.findall(own)]
    while words and (words[-1].isdigit() or words[-1] == "v"):
        words.pop()
    return words


def _says_so(words: list[str]) -> bool:
    if any(strong in word for word in words for strong in _STRONG) or any(word in _WORDS for word in words):
        return True
    if any(_is_token(word, words[at - 1] if at else "") for at, word in enumerate(words)):
        return True
    together = {*pairwise(words), *zip(words, words[1:], words[2:], strict=False)}
    return words[-1] in _LAST_WORDS or bool(together & _COMPOUNDS)


def _own_name(name: str) -> str | None:
    """What the setting itself is called; ``None`` where it only refers to a secret."""
    name = name.strip()
    if name in _OF_THE_SHELL or _REFERENCE.match(name):
        return None
    environment = _ENVIRONMENT_OF.match(name)
    if environment is not None:
        return _own_name(name[environment.end() :])
    own = re.sub(HADOOP, "", name)
    adls, azure = _ADLS.match(own), _AZURE.match(own)
    if adls is not None:
        return adls[1]
    if azure is not None:
        return azure[1]
    if _WASB_SAS.match(own):
        return "sas"
    own = _BUCKET.sub("fs.s3a.", _CATALOG.sub("", own))
    return _ACCOUNT_HOST.sub("", own)


def _is_secret_after_all(words: list[str]) -> bool:
    """Names whose last word looks harmless: an access key's id (half of a pair), Vault's, a webhook's address."""
    return words[-3:] == ["access", "key", "id"] or words[-2:] in (
        ["accesskey", "id"],
        ["secret", "id"],
        ["webhook", "url"],
    )


def _is_token(word: str, before: str) -> bool:
    return word.endswith(("token", "tokens")) and before not in ("max", "min", "num")


def _names_a_key(words: list[str]) -> bool:
    for at, word in enumerate(words):
        before = words[at - 1] if at else ""
        if word in ("key", "keys") and before in _SECRET_KEYS:
            # A name that goes on tells how the key is written, or something about it.
            return True
    return words[-1] == "key" and (len(words) == 1 or words[-2] not in _OPEN_KEYS)


# --- values -------------------------------------------------------------------------------------------------------

_URL = re.compile(r"://[^/\s'\"`@:]{0,200}:(?!\d{1,5}(?:[/,?#;]|$))([^\s'\"`<>]{1,400})@")
_ORACLE = re.compile(r"(?i)jdbc:oracle:\w+:[^/\s@]{1,200}/([^\s@'\"]{1,200})@")
_PRIVATE = re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----.*?(?:-----END [A-Z0-9 ]*-----|\Z)", re.DOTALL)
_AUTHORIZATION = re.compile(
    r"(?i)\bauthorization\\*['\"]?\s*(?:=>|[:=])\s*\\*['\"]?((?:[\w-]+ +)?[^\s'\"\\,;]+)"
    r"|\bbearer\s+([\w.~+/=-]{12,})"
    r"|\A\s*(?:bearer|basic|token|apikey)\s+(\S+)\s*\Z"
)
_SHAPED = re.compile(
    r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bgh[pousr]_[A-Za-z0-9]{30,}|\bdapi[0-9a-f]{32}\b"
    r"|\bxox[abprs]-[\w-]{10,}|\bAIza[\w-]{35}\b|\bglpat-[\w-]{20}"
)
_NAME = r"(?<![\w.-])-*(?:(?<=-)D(?=[a-z]))?(?P<name>[A-Za-z_][\w.-]*)(?P<end>\\*+['\"`]?+)"
# Within text that is quoted itself the quotes are escaped: the value ends with one that is, else with one that is not.
_QUOTED = (
    r"(?:\\+(?P<inner>['\"`])(?P<escaped>(?:(?!\\+(?P=inner)).)*)"
    r"|(?P<quote>['\"`])(?P<quoted>(?:\\.|(?P=quote){2}|(?!(?P=quote)).)*)"
)
_ASSIGNED = re.compile(_NAME + r"\s*(?P<sign>=>|==?|:)\s*")
# As in OPTIONS (password 'x'): a name and its value with nothing between.
_BESIDE = re.compile(_NAME + r"(?P<sign>)(?:\s*(?=['\"`])|(?<=['\"`])\s+(?=\w))")
_VALUE = re.compile(_QUOTED + r"|(?P<bare>[^\s&;'\"`\\{}\[\]()]+))", re.DOTALL)
_NO_SECRETS = re.compile(r"(?i)\A(?:true|false|null|none|\*+.*|\$\{.*\}|\{\{.*\}\}|<\w+>|…|\.\.\.)?\Z", re.DOTALL)
_KEY_LENGTH = 16
# With a colon and no quotes a name stands in prose as well: "token: expected".
_WITH_COLON = re.compile(r"(?i)passw(?:or)?d|passphrase|api[._-]?key|secret[._-]?(?:access[._-]?)?key|account[._-]?key")


def secrets_in_text(text: str) -> list[str]:
    """The secrets that stand in a value or a text: passwords in URLs, signatures of signed ones, ``-D…Password=…``,
    connection strings, ``Authorization`` headers, private keys, JSON fields with a secret's name."""
    found = [text[start:end] for start, end in _spans(text)]
    if text.lstrip()[:1] in ("{", "["):
        try:
            held = json.loads(text)
        except (ValueError, RecursionError):
            held = None
        if isinstance(held, dict | list):
            found += secrets_in(held)
    return list(dict.fromkeys(one for one in found if one))


def holds_secret(name: str, value: Any) -> bool:
    """Whether a setting's name or its value makes it one that must be kept. True and false are no secrets."""
    if isinstance(value, bool) or value is None:
        return False
    if isinstance(value, Mapping | list | tuple):
        return bool(secrets_in({name: value}))
    text = str(value)
    if _NO_SECRETS.match(text):
        return False
    return is_secret(name) or bool(secrets_in_text(text))


def secrets_in(held: Any) -> list[str]:
    """Every secret value in an object, list or text, however deep, by the names above it and by what it says; of a SQL
    text also those of :func:`secrets_in_statement`."""
    return list(dict.fromkeys(secret for _, secret in _values(held, False, "")))


def places_of_secrets(held: Any) -> list[str]:
    """Where in an object or list secrets stand: ``source.options.password``, ``batches[1].sql``; never their values."""
    return list(dict.fromkeys(place for place, _ in _values(held, False, "")))


def known_secrets(*held: Any) -> list[str]:
    """The secrets in these objects that are long enough to be looked for in texts; the longest first, so that none
    hides another."""
    found = {value for one in held for value in secrets_in(one) if len(value) >= SHORTEST}
    return sorted(found, key=len, reverse=True)


def _values(held: Any, secret: bool, place: str) -> Iterator[tuple[str, str]]:
    """Places and values of secrets."""
    if isinstance(held, Mapping):
        for name, value in held.items():
            within = f"{place}.{name}" if place else str(name)
            yield from _values(value, secret or (isinstance(name, str) and is_secret(name)), within)
    elif isinstance(held, list | tuple | set | frozenset):
        for at, value in enumerate(held):
            yield from _values(value, secret, f"{place}[{at}]")
    elif held is not None and not isinstance(held, bool):
        text = str(held)
        if secret and not _NO_SECRETS.match(text):
            yield place, text
        if isinstance(held, str):
            yield from ((place, one) for one in (*secrets_in_text(text), *secrets_in_statement(text)))


def check_unwritten(what: str, held: Mapping[str, Any], hint: str) -> None:
    """Refuses secrets in what a table's log would keep, where whoever reads the table or its page sees them.

    :param what: the kind of entry, for the error: ``property``, ``option``.
    :raises InvalidInput: names the entry, never its value.
    """
    for name, value in held.items():
        # A column may be called password; what is said of it may not hold one.
        if secrets_in_text(str(value)) if name.lower().startswith("comment") else holds_secret(name, value):
            raise InvalidInput(
                f"The {what} {name!r} looks like a secret, and a table's log keeps {_PLURALS[what]}.", hint=hint
            )


_PLURALS = {"property": "properties", "option": "options", "location": "locations"}
UNWRITTEN_HINT = (
    "Give it in storage_options or in the settings of the Spark session, which are never written down; a property may "
    "name the place where it is kept."
)


# --- texts --------------------------------------------------------------------------------------------------------


def hide(text: str, secrets: Iterable[str] = ()) -> str:
    """The text with these secrets, and all that can be told from their looks, as ``***``."""
    for secret in secrets:
        text = text.replace(secret, STARS)
    for start, end in reversed(_spans(text)):
        text = text[:start] + STARS + text[end:]
    return text


def hide_in_statement(text: str) -> str:
    """The SQL text with its secrets starred out, each as long as it was and on as many lines, so that places stay."""
    for start, end in _spans(text, statement=True):
        text = text[:start] + re.sub(r"[^\n]", "*", text[start:end]) + text[end:]
    return text


def secrets_in_statement(text: str) -> list[str]:
    """The values in a SQL text that :func:`hide_in_statement` stars out and that are long enough to be looked for."""
    return [text[start:end] for start, end in _spans(text, statement=True) if end - start >= SHORTEST]


def hide_all(value: Any, secrets: list[str]) -> Any:
    """The same for every text of a JSON value."""
    if isinstance(value, str):
        return hide(value, secrets)
    if isinstance(value, Mapping):
        return {hide(name, secrets) if isinstance(name, str) else name: hide_all(one, secrets)
                for name, one in value.items()}  # fmt: skip
    return [hide_all(one, secrets) for one in value] if isinstance(value, list | tuple) else value


# --- Spark's own redaction ----------------------------------------------------------------------------------------

REDACTION = (
    r"(?i)secret|passw(or)?d|passphrase|passcode|token|credential|authorization|bearer|signature|fernet|jaas|cookie"
    r"|(access|account|api|private|shared|encryption|decryption|customer|master|session|signing|service)[._-]?keys?(?![a-z])"
    r"|[._-](pwd|pass|sas|dsn|key)$|[._]sas[._]|connection[._-]?string|[?&;]sig[=]|:/{2}[^/@: ]*:[^/@ ]+@"
)
"""What Spark hides on its pages and in its event log: its own default, and what it leaves out. Spark holds it against
names and values, and hides the value where either fits. It stands in errors: nothing in it may look like a secret."""


def redaction_regex(conf: Mapping[str, str], asked: str | None = None) -> str:
    """A pattern for ``spark.redaction.regex`` that hides every secret among these settings.

    :param asked: the pattern that the user wants or that a server has, which goes on hiding what it hides.
    """
    parts = [asked if asked and asked.startswith(REDACTION) else REDACTION]
    if asked and asked != SPARKS_REDACTION and parts != [asked]:
        parts.append(_scoped(asked))
    parts += [f"^(spark[.]hadoop[.])?{literal(re.sub(HADOOP, '', name))}$" for name in not_hidden(parts[0], conf)]
    return "|".join(parts)


def _scoped(pattern: str) -> str:
    """Return the pattern as a part of a longer one, with its own flags, which Python takes at the head alone."""
    flags = re.match(r"\(\?([a-zA-Z]+)\)", pattern)
    if flags is None:
        return f"(?-i:{pattern})"
    return f"(?{flags[1]}{'' if 'i' in flags[1] else '-i'}:{pattern[flags.end() :]})"


def not_hidden(pattern: str, conf: Mapping[str, str]) -> list[str]:
    """The secret settings among these that a Spark with this ``spark.redaction.regex`` shows, sorted."""
    try:
        found = re.compile(pattern)
    except re.error:  # Java knows constructs that Python does not
        found = re.compile(SPARKS_REDACTION)
    return sorted(name for name, value in conf.items() if holds_secret(name, value) and not found.search(name))


def literal(name: str) -> str:
    """A name as a pattern that Java and Python read alike."""
    # In brackets where it can be: a file of Java's properties takes backslashes away.
    return "".join(
        letter if letter.isalnum() or letter in "-_" else f"\\{letter}" if letter in "^[]\\" else f"[{letter}]"
        for letter in name
    )


SPARKS_REDACTION = "(?i)secret|password|token|access[.]?key"
"""Spark's own default."""


def _spans(text: str, statement: bool = False) -> list[tuple[int, int]]:
    """Where secrets stand, in order and apart from one another."""
    found = [match.span(1) for pattern in (_URL, _ORACLE) for match in pattern.finditer(text)]
    found += [match.span() for pattern in (_PRIVATE, _SHAPED) for match in pattern.finditer(text)]
    found += [match.span(match.lastindex or 0) for match in _AUTHORIZATION.finditer(text)]
    found += _assigned(_ASSIGNED, text)
    if statement:
        found += _assigned(_BESIDE, text)
    found = [(start, end) for start, end in found if not _NO_SECRETS.match(text[start:end])]
    apart: list[tuple[int, int]] = []
    for start, end in sorted(found):
        if apart and start <= apart[-1][1]:
            apart[-1] = (apart[-1][0], max(end, apart[-1][1]))
        else:
            apart.append((start, end))
    return apart


def _assigned(pattern: re.Pattern[str], text: str) -> Iterator[tuple[int, int]]:
    at = 0
    while (named := pattern.search(text, at)) is not None:
        # A value may hold a name and a value again.
        at = named.end()
        if not is_secret(named["name"]):
            continue
        value = _VALUE.match(text, at)
        if value is None:
            continue
        group = next(group for group in ("quoted", "escaped", "bare") if value[group] is not None)
        if _is_meant(named, value[group], group == "bare"):
            yield value.span(group)
            at = value.end()


def _is_meant(named: re.Match[str], value: str, bare: bool) -> bool:
    """Whether a name of a secret and what stands behind it are a setting, and no prose and no column."""
    name = named["name"]
    if named["sign"] == ":" and bare:
        quoted = bool(named["end"])
        if not (any(letter.isdigit() for letter in value) if quoted else _WITH_COLON.search(name)):
            return False
    # Columns are called account_key and the like: there the value has to look like a key as well.
    if _says_so(_words(_own_name(name) or "")):
        return True
    return len(value) >= _KEY_LENGTH and not value.isdigit() and " " not in value
