"""The encryption of each listener: one `ssl.SSLContext` from its settings, renewed while the broker runs.

A listener's terms change when its stores are altered (`listener.name.NAME.ssl.keystore...`, KIP-226) or when their
files change. Existing connections keep the terms that they began with. A store that cannot be read, or that would
change the broker's name, changes nothing: an alteration is refused, a bad file is logged.

Reading stores takes long (many rounds of hashing turn a password into a key): a thread does it, except at the start.

Source: KIP-226 (dynamic stores), KIP-651 (PEM), KIP-684 (client certificates beside SASL), KIP-1119 (changes of names).
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import trio

from barnabas.broker.log import EventLog
from barnabas.broker.security import cipher_suites, distinguished_names
from barnabas.broker.security.driver_certificate import DriverCertificate, driver_certificate
from barnabas.broker.security.principal_mapping import KEY as MAPPING_KEY
from barnabas.broker.security.principal_mapping import PrincipalMapping
from barnabas.broker.security.principals import ANONYMOUS, Principal
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.keys import ConfigError
from barnabas.broker.settings.listeners import Listener, scoped_name
from barnabas.broker.settings.ssl_keys import DYNAMIC, SSL_KEYS
from barnabas.broker.workers import Workers
from barnabas.client.keystores.stores import (
    Identity,
    StoreError,
    certificates_of,
    load_identity,
    read_identities,
    read_trusted,
)

# How often the broker checks whether the files of a store have changed.
WATCH_SECONDS = 3.0
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_FILES = ("ssl.keystore.location", "ssl.truststore.location")
_ASKED = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


class Who(NamedTuple):
    """The name on a broker's certificate."""

    subject: str
    names: frozenset[str]


@dataclass(frozen=True)
class TlsTerms:
    """The TLS settings with which a connection of a listener begins."""

    context: ssl.SSLContext
    mapping: PrincipalMapping
    names_clients: bool  # whether a certificate identifies the client, rather than SASL
    driver: bytes | None = None  # the certificate (DER) of the streams driver, which identifies nobody

    def principal(self, certificate: bytes | None) -> Principal:
        """The principal of a client's certificate (DER). Raises NoRuleFits, DerError."""
        if certificate is None or not self.names_clients or certificate == self.driver:
            return ANONYMOUS
        return Principal("User", self.mapping.name_of(distinguished_names.subject_of(certificate)))


@dataclass(frozen=True)
class _Loaded:
    values: Mapping[str, Any]  # of the listener's keys
    files: tuple[object, ...]  # identifies the state of its files
    terms: TlsTerms
    who: tuple[Who, ...]
    certificates: str  # the broker's, as PEM


class TlsListeners:
    """The terms of all listeners that encrypt."""

    def __init__(self, config: BrokerConfig, log: EventLog, workers: Workers) -> None:
        self._config, self._log, self._workers = config, log, workers
        others = [config.http] if config.http is not None else []
        self._listeners = [each for each in [*config.listeners, *others] if each.protocol.is_encrypted]
        self._loaded: dict[str, _Loaded] = {}
        self._prepared: dict[str, _Loaded] = {}  # read for an alteration that is not yet in force
        self._refused: dict[str, tuple[object, ...]] = {}  # states of files that could not be used
        self._wake = trio.Event()
        self._secret: str | None = None

    def trust_driver(self, secret: str) -> None:
        """Let the streams driver connect to listeners that ask clients for certificates. For the start."""
        self._secret = secret

    def driver(self, listener: str) -> DriverCertificate | None:
        """The driver's certificate, if a listener for Kafka's clients asks for one."""
        if self._secret is None or all(each.name != listener for each in self._config.listeners):
            return None
        return None if self._values(listener)["ssl.client.auth"] == "none" else driver_certificate(self._secret)

    def __bool__(self) -> bool:
        return bool(self._listeners)

    def certificates(self, listener: str) -> str:
        """The certificates that a listener shows, as PEM."""
        return self._loaded[listener].certificates

    def terms(self, listener: str) -> TlsTerms:
        """The terms for a new connection of a listener."""
        return self._loaded[listener].terms

    def settings_changed(self) -> None:
        """Put the settings into force. At a start, raises ConfigError for stores that cannot be used."""
        for listener in self._listeners:
            values = self._values(listener.name)
            loaded, prepared = self._loaded.get(listener.name), self._prepared.pop(listener.name, None)
            if loaded is None:
                self._loaded[listener.name] = _load(listener, values, self.driver(listener.name))
            elif values != loaded.values:
                if prepared is not None and prepared.values == values:
                    self._loaded[listener.name] = prepared
                    self._log.info("tls.renewed", listener=listener.name, reason="its settings were altered")
                else:
                    self._wake.set()

    async def prepare(self, dynamic: Mapping[str, Any]) -> None:
        """Read the stores that other dynamic settings name. Raises ConfigError if a listener could not use them."""
        for listener in self._listeners:
            values = self._values(listener.name, dynamic)
            loaded = self._loaded[listener.name]
            if any(values[name] != loaded.values[name] for name in DYNAMIC):
                self._prepared[listener.name] = await self._workers.disk(
                    partial(_renew, listener, values, loaded, self.driver(listener.name))
                )

    async def watch(self) -> None:
        """Renew a listener's terms when its files change; a task of the broker."""
        while self._listeners:
            with trio.move_on_after(WATCH_SECONDS):
                await self._wake.wait()
            self._wake = trio.Event()
            for listener in self._listeners:
                await self._look(listener)

    async def _look(self, listener: Listener) -> None:
        name, loaded, values = listener.name, self._loaded[listener.name], self._values(listener.name)
        files = await self._workers.disk(partial(_state, values))
        if (files == loaded.files and values == loaded.values) or files == self._refused.get(name):
            return
        try:
            renewed = await self._workers.disk(partial(_renew, listener, values, loaded, self.driver(listener.name)))
        except ConfigError as error:
            self._refused[name] = files
            self._log.warning("tls.not.renewed", listener=name, error=error, effect="the previous certificate stays")
            return
        self._refused.pop(name, None)
        if self._loaded[name] is loaded:  # else it was altered meanwhile
            self._loaded[name] = renewed
            self._log.info("tls.renewed", listener=name, reason="its files have changed")

    def _values(self, listener: str, dynamic: Mapping[str, Any] | None = None) -> dict[str, Any]:
        values = {key.name: self._config.of(listener, key.name, dynamic=dynamic) for key in SSL_KEYS}
        protocol = next(each.protocol for each in self._listeners if each.name == listener)
        if protocol.has_sasl and scoped_name(listener, "ssl.client.auth") not in self._config.static:
            values["ssl.client.auth"] = "none"
        return values


def _state(values: Mapping[str, Any]) -> tuple[object, ...]:
    """A value that changes when a listener's files change."""
    found: list[object] = []
    for name in _FILES:
        try:
            status = os.stat(values[name]) if values[name] else None
        except (OSError, ValueError):
            status = None
        found.append(status and (status.st_mtime_ns, status.st_size, status.st_ino))
    return tuple(found)


def _renew(listener: Listener, values: Mapping[str, Any], before: _Loaded, driver: DriverCertificate | None) -> _Loaded:
    """The terms from new stores, if the broker keeps its name. Raises ConfigError."""
    loaded = _load(listener, values, driver)
    with _told(listener):
        _check_same(values, before.who, loaded.who)
    return loaded


@contextmanager
def _told(listener: Listener) -> Iterator[None]:
    try:
        yield
    except (ConfigError, StoreError) as error:
        raise ConfigError(f"Listener {listener.name}: {error}") from None


def _load(listener: Listener, values: Mapping[str, Any], driver: DriverCertificate | None) -> _Loaded:
    """Read a listener's stores. Raises ConfigError."""
    own = None if driver is None else driver.der
    files = _state(values)
    with _told(listener):
        identities = read_identities(values)
        context = _context(values, identities, own)
        certificates = "".join(certificates_of(each) for each in identities)
        terms = TlsTerms(context, PrincipalMapping(values[MAPPING_KEY]), not listener.protocol.has_sasl, own)
    return _Loaded(values, files, terms, tuple(Who(each.subject, each.names) for each in identities), certificates)


def _context(values: Mapping[str, Any], identities: Sequence[Identity], driver: bytes | None) -> ssl.SSLContext:
    """`driver` is a certificate (DER) that is trusted, too."""
    versions = [_VERSIONS[name] for name in values["ssl.enabled.protocols"]]
    if not versions:
        raise StoreError("ssl.enabled.protocols is empty: name TLSv1.2, TLSv1.3 or both")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.num_tickets = 0  # TLS 1.3 tickets: clients keep their connections, and a ticket costs more than it saves
    cipher_suites.choose(context, values[cipher_suites.KEY])
    for identity in identities:
        load_identity(context, identity)
    asked = values["ssl.client.auth"]
    context.verify_mode = _ASKED[asked]
    if asked != "none":
        trusted = read_trusted(values)
        if trusted is None:
            raise StoreError(
                f"ssl.client.auth={asked} needs certificates to trust: name a file with ssl.truststore.location"
            )
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as in Java, each certificate is trusted on its own
        context.load_verify_locations(cadata=b"".join([*trusted, driver or b""]))
    return context


def _check_same(values: Mapping[str, Any], before: Sequence[Who], after: Sequence[Who]) -> None:
    """Raises ConfigError if a renewed key store changes the broker's name."""
    if len(before) != len(after):
        raise StoreError(f"the key store has {len(after)} keys in place of {len(before)}; restart to use it")
    for old, new in zip(sorted(before, key=_subject), sorted(after, key=_subject), strict=True):
        if old.subject != new.subject and not values["ssl.allow.dn.changes"]:
            raise StoreError(
                f"the renewed certificate is of {new.subject}, the one before of {old.subject}: "
                "set ssl.allow.dn.changes=true to allow that, or restart"
            )
        lost = old.names - new.names
        if lost and not values["ssl.allow.san.changes"]:
            raise StoreError(
                f"the renewed certificate lacks {', '.join(sorted(lost))}: "
                "set ssl.allow.san.changes=true to allow that, or restart"
            )


def _subject(who: Who) -> str:
    return who.subject
