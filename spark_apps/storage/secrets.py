"""Secrets: known by the name of a setting, option or variable, and by what is in its value.

Everything that sorts, hides or refuses secrets asks this module, so that the command line, the environment, files,
logs, error texts, Spark's page and Airflow's agree. When in doubt a value is a secret. No Spark, no Airflow, no
network.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any

STARS = "***"
MIN_LENGTH = 4
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
_FTP = re.compile(r"(?i)^fs\.s?ftp\.(password|passphrase|user|host)(?:\.|$)")
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
"""Last words of names that state where a secret is, of what kind or for how long, and not the secret."""

_STRONG = (
    "password", "passwd", "passphrase", "passcode", "secret", "credential", "authorization", "apikey", "accesskey",
    "accountkey", "privatekey", "sharedkey", "encryptionkey", "signature", "connectionstring", "fernet", "webhook",
)  # fmt: skip
"""Parts of words which are enough anywhere in a name."""

_WORDS = {"bearer", "sas", "sig", "jwt", "creds", "cred", "dsn", "cookie", "cookies", "jaas", "pwd", "keyphrase"}
_LAST_WORDS = {"pass", "pw", "psw", "otp", "totp", "pin", "pat", "assertion", "mnemonic", "pfx"}
_LAST_ENDS = re.compile(r"(?<!by)(?<!com)(?<!sur)(?<!tres)(?<!over)(?<!under)(?<!encom)pass$|(?<=\w\w)(?:pwd|pw)$")
"""What a last word of several, written as one, ends with: ``PGPASS``, ``BINDPW``."""
_AUTH_OF_A_KIND = {
    "client", "need", "want", "mutual", "preemptive", "require", "requires", "use", "no", "skip", "ssl", "tls", "http",
    "enable", "kerberos", "user", "proxy", "peer", "server",
}  # fmt: skip
"""Before a last ``auth``: whether or how one is asked for it (``ssl.client.auth``), and not by what."""
_COMPOUNDS = {
    ("auth", "header"), ("connection", "string"), ("conn", "string"), ("user", "info"), ("basic", "auth"),
    ("auth", "params"), ("auth", "param"), ("auth", "data"), ("auth", "string"), ("auth", "code"), ("auth", "value"),
    ("docker", "auth"), ("kerberos", "ticket"), ("cert", "pem"), ("certificate", "pem"), ("mfa", "code"),
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
    """Test whether a setting, storage option, reader option, property or variable of that name holds a secret.

    The setting's own name decides: not that of the account, bucket, catalog or variable list within it.
    """
    own_name = _own_name(name)
    if own_name is None or own_name.lower() in _KNOWN_OPEN:
        return False
    words = _words(own_name)
    if not words:
        return False
    if words[-1] in _OPEN_TAILS and not _is_secret_after_all(words):
        return False
    return _names_a_secret(words) or _names_a_key(words)


def _words(own_name: str) -> list[str]:
    words = [word.lower() for word in _PARTS.findall(own_name)]
    while words and (words[-1].isdigit() or words[-1] == "v"):
        words.pop()
    if words and words[-1].endswith("key") and words[-1][:-3] in _SECRET_KEYS:
        words[-1:] = [words[-1][:-3], "key"]  # SSHKEY
    return words


def _names_a_secret(words: list[str]) -> bool:
    if any(strong in word for word in words for strong in _STRONG) or any(word in _WORDS for word in words):
        return True
    if any(_is_token(word, words[at - 1] if at else "") for at, word in enumerate(words)):
        return True
    together = {*pairwise(words), *zip(words, words[1:], words[2:], strict=False)}
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if last == "auth" and before and before not in _AUTH_OF_A_KIND:
        return True
    return last in _LAST_WORDS or _LAST_ENDS.search(last) is not None or bool(together & _COMPOUNDS)


def _own_name(name: str) -> str | None:
    """Return the name of the setting itself; ``None`` where it only refers to a secret."""
    name = name.strip()
    if name in _OF_THE_SHELL or _REFERENCE.match(name):
        return None
    environment = _ENVIRONMENT_OF.match(name)
    if environment is not None:
        return _own_name(name[environment.end() :])
    own_name = re.sub(HADOOP, "", name)
    adls, azure, ftp = _ADLS.match(own_name), _AZURE.match(own_name), _FTP.match(own_name)
    if ftp is not None:
        return ftp[1]  # a host and a user follow it
    if adls is not None:
        return adls[1]
    if azure is not None:
        return azure[1]
    if _WASB_SAS.match(own_name):
        return "sas"
    own_name = _BUCKET.sub("fs.s3a.", _CATALOG.sub("", own_name))
    return _ACCOUNT_HOST.sub("", own_name)


def _is_secret_after_all(words: list[str]) -> bool:
    """Test names whose last word looks harmless: an access key's id (half of a pair), a webhook's address."""
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
            # A name that goes on states how the key is written, or something about it.
            return True
    return words[-1] == "key" and (len(words) == 1 or words[-2] not in _OPEN_KEYS)


# --- values -------------------------------------------------------------------------------------------------------

_URL = re.compile(r"://[^/\s'\"`@:]{0,200}:(?!\d{1,5}(?:[/,?#;]|$))([^\s'\"`<>]{1,400})@")
# In front of a host alone: a token. In front of an Azure account it would be its container.
_USER = re.compile(r"(?i)(?<![a-z0-9+.-])(?:[a-z]+\+)?(?:https?|s?ftps?|ssh)://([^/\s'\"`@:?#]{8,400})@")
# The shell's working directory has this name too, and begins with a slash.
_PWD = re.compile(r"(?i)[;?&]pwd=([^/;&\s'\"][^;&\s'\"]*)")
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
# A name followed by a colon, without quotes, is in prose as well: "token: expected".
_WITH_COLON = re.compile(r"(?i)passw(?:or)?d|passphrase|api[._-]?key|secret[._-]?(?:access[._-]?)?key|account[._-]?key")


def secrets_in_text(text: str) -> list[str]:
    """Return the secrets in a value or a text.

    They are passwords in URLs, signatures of signed ones, ``-D…Password=…``, connection strings, ``Authorization``
    headers, private keys, and JSON fields with a secret's name.
    """
    secrets = [text[start:end] for start, end in _spans(text)]
    if text.lstrip()[:1] in ("{", "["):
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            document = None
        if isinstance(document, dict | list):
            secrets += secrets_in(document)
    return list(dict.fromkeys(one for one in secrets if one))


def holds_secret(name: str, value: Any) -> bool:
    """Test whether a setting's name or its value makes it one to keep secret. True and false are no secrets."""
    if isinstance(value, bool) or value is None:
        return False
    if isinstance(value, Mapping | list | tuple):
        return bool(secrets_in({name: value}))
    text = str(value)
    if _NO_SECRETS.match(text):
        return False
    return is_secret(name) or bool(secrets_in_text(text))


def secrets_in(given: Any) -> list[str]:
    """Return every secret value in an object, list or text, however deep.

    It is known by the names above it and by its own form; of a SQL text also those of :func:`secrets_in_statement`.
    """
    return list(dict.fromkeys(secret for _, secret in _values(given, False, "")))


def paths_of_secrets(given: Any) -> list[str]:
    """Return the paths of secrets in an object or list, such as ``batches[1].sql``; never their values."""
    return list(dict.fromkeys(path for path, _ in _values(given, False, "")))


def known_secrets(*given: Any) -> list[str]:
    """Return the secrets in these objects that are long enough to be looked for in texts.

    The longest comes first, so that none hides another.
    """
    values = {value for one in given for value in secrets_in(one) if len(value) >= MIN_LENGTH}
    return sorted(values, key=len, reverse=True)


def _values(given: Any, secret: bool, path: str) -> Iterator[tuple[str, str]]:
    """Yield paths and values of secrets."""
    if isinstance(given, Mapping):
        for name, value in given.items():
            within = f"{path}.{name}" if path else str(name)
            yield from _values(value, secret or (isinstance(name, str) and is_secret(name)), within)
    elif isinstance(given, list | tuple | set | frozenset):
        for at, value in enumerate(given):
            yield from _values(value, secret, f"{path}[{at}]")
    elif given is not None and not isinstance(given, bool):
        text = str(given)
        if secret and not _NO_SECRETS.match(text):
            yield path, text
        if isinstance(given, str):
            yield from ((path, one) for one in (*secrets_in_text(text), *secrets_in_statement(text)))


# --- texts --------------------------------------------------------------------------------------------------------


def hide(text: str, secrets: Iterable[str] = ()) -> str:
    """Return the text with these secrets, and all that have the form of one, as ``***``."""
    for secret in secrets:
        text = text.replace(secret, STARS)
    for start, end in reversed(_spans(text)):
        text = text[:start] + STARS + text[end:]
    return text


_IN_QUERY = re.compile(r"[?&;]([\w.%-]+)=([^&;\s'\"`<>#]+)")


def hide_address(text: str) -> str:
    """Return an address, or a text with addresses, with passwords, tokens and signatures in them as ``***``."""
    spans = [match.span(1) for pattern in (_URL, _USER) for match in pattern.finditer(text)]
    spans += [match.span(2) for match in _IN_QUERY.finditer(text) if is_secret(match[1])]
    for start, end in reversed(_merged_spans(spans)):
        text = text[:start] + STARS + text[end:]
    return text


def hide_in_statement(text: str) -> str:
    """Return the SQL text with its secrets starred out, each as long as it was and on as many lines.

    So positions in the text stay.
    """
    for start, end in _spans(text, statement=True):
        text = text[:start] + re.sub(r"[^\n]", "*", text[start:end]) + text[end:]
    return text


def secrets_in_statement(text: str) -> list[str]:
    """Return the values in a SQL text that :func:`hide_in_statement` stars out, if long enough to look for."""
    return [text[start:end] for start, end in _spans(text, statement=True) if end - start >= MIN_LENGTH]


def hide_all(value: Any, secrets: list[str]) -> Any:
    """Return a JSON value with the secrets of every text as ``***``."""
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
"""What Spark hides on its pages and in its event log: its own default, and what that leaves out. Spark matches it with
names and values, and hides the value where either matches. Errors quote it: no part of it may look like a secret."""


def redaction_regex(conf: Mapping[str, str], configured: str | None = None) -> str:
    """Return a pattern for ``spark.redaction.regex`` that hides every secret among these settings.

    :param configured: the user's or the server's own pattern, which goes on hiding what it hides.
    """
    parts = [configured if configured and configured.startswith(REDACTION) else REDACTION]
    if configured and configured != SPARKS_REDACTION and parts != [configured]:
        parts.append(_scoped(configured))
    parts += [f"^(spark[.]hadoop[.])?{literal(re.sub(HADOOP, '', name))}$" for name in not_hidden(parts[0], conf)]
    return "|".join(parts)


def _scoped(pattern: str) -> str:
    """Return the pattern as a part of a longer one, with its own flags, which Python takes at the head alone."""
    flags = re.match(r"\(\?([a-zA-Z]+)\)", pattern)
    if flags is None:
        return f"(?-i:{pattern})"
    return f"(?{flags[1]}{'' if 'i' in flags[1] else '-i'}:{pattern[flags.end() :]})"


def not_hidden(pattern: str, conf: Mapping[str, str]) -> list[str]:
    """Return the secret settings among these that a Spark with this ``spark.redaction.regex`` shows, sorted."""
    try:
        regex = re.compile(pattern)
    except re.error:  # Java knows constructs that Python does not
        regex = re.compile(SPARKS_REDACTION)
    return sorted(name for name, value in conf.items() if holds_secret(name, value) and not regex.search(name))


def literal(name: str) -> str:
    """Return a name as a pattern that Java and Python read alike."""
    # In brackets where it can be: a file of Java's properties takes backslashes away.
    return "".join(
        letter if letter.isalnum() or letter in "-_" else f"\\{letter}" if letter in "^[]\\" else f"[{letter}]"
        for letter in name
    )


SPARKS_REDACTION = "(?i)secret|password|token|access[.]?key"
"""Spark's own default."""


def _spans(text: str, statement: bool = False) -> list[tuple[int, int]]:
    """Return where the secrets of a text are, in order and not overlapping."""
    spans = [match.span(1) for pattern in (_URL, _USER, _PWD, _ORACLE) for match in pattern.finditer(text)]
    spans += [match.span() for pattern in (_PRIVATE, _SHAPED) for match in pattern.finditer(text)]
    spans += [match.span(match.lastindex or 0) for match in _AUTHORIZATION.finditer(text)]
    spans += _assigned(_ASSIGNED, text)
    if statement:
        spans += _assigned(_BESIDE, text)
    spans = [(start, end) for start, end in spans if not _NO_SECRETS.match(text[start:end])]
    return _merged_spans(spans)


def _merged_spans(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return spans in order, those that touch as one."""
    apart: list[tuple[int, int]] = []
    for start, end in sorted(spans):
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
        if _is_assignment(named, value[group], group == "bare"):
            yield value.span(group)
            at = value.end()


def _is_assignment(named: re.Match[str], value: str, bare: bool) -> bool:
    """Test whether a secret's name and what follows are a setting, and no prose and no column."""
    name = named["name"]
    if named["sign"] == ":" and bare:
        quoted = bool(named["end"])
        if not (any(letter.isdigit() for letter in value) if quoted else _WITH_COLON.search(name)):
            return False
    # Columns are called account_key and the like: there the value has to look like a key as well.
    if _names_a_secret(_words(_own_name(name) or "")):
        return True
    return len(value) >= _KEY_LENGTH and not value.isdigit() and " " not in value
