"""How clients of each listener log in: mechanisms come from the settings, users from the metadata.

The streams driver logs in on every listener, with a mechanism of its own that no list of mechanisms names: SCRAM with
a secret that is only in the data directory (`broker.jobs.driver_secret`).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import trio

from barnabas.broker.clock import Clock
from barnabas.broker.log import EventLog
from barnabas.broker.metadata.image import Listener as MetadataListener
from barnabas.broker.metadata.image import MetadataImage
from barnabas.broker.metadata.topic_manager import TopicManager
from barnabas.broker.security.audit import Audit
from barnabas.broker.security.oauthbearer import OAuthExchange, TokenChecker
from barnabas.broker.security.plain import PlainExchange, users_of
from barnabas.broker.security.principals import DRIVER, NODE, parse_principal
from barnabas.broker.security.sasl import Exchange, Identified, Login, Mechanism
from barnabas.broker.security.scram import Found, ScramExchange
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.keys import ConfigError
from barnabas.broker.settings.listeners import NODES, Listener
from barnabas.broker.settings.sasl_keys import check_mechanisms
from barnabas.wire import scram
from barnabas.wire.driver_login import MECHANISM as DRIVER_MECHANISM
from barnabas.wire.driver_login import NAME as DRIVER_NAME
from barnabas.wire.driver_login import SCRAM as DRIVER_SCRAM
from barnabas.wire.errors import KafkaError
from barnabas.wire.node_login import MECHANISM as NODE_MECHANISM
from barnabas.wire.node_login import NAME as NODE_NAME
from barnabas.wire.node_login import SCRAM as NODE_SCRAM
from barnabas.wire.records.cluster_metadata import RemoveDelegationTokenRecord
from barnabas.wire.types import Message

if TYPE_CHECKING:
    from barnabas.broker.registry import Context


class Authentication(MetadataListener):
    """The mechanisms of each listener under the current settings."""

    def __init__(
        self,
        config: BrokerConfig,
        metadata: MetadataImage,
        topics: TopicManager,
        clock: Clock,
        log: EventLog,
        audit: Audit,
    ) -> None:
        """Raises ConfigError for a listener to which no client could log in."""
        self._config, self._metadata, self._topics, self._clock, self._log = config, metadata, topics, clock, log
        self._audit = audit
        self._driver: scram.Credential | None = None
        self._nodes: dict[str, Mechanism] = {}
        self._checkers: dict[str, TokenChecker] = {}
        self._checkers_changed = trio.Event()
        self._of: dict[str, dict[str, Mechanism]] = {}
        self._read()

    async def run(self) -> None:
        """Keep the keys that sign tokens fresh, until cancelled."""
        await self._run_checkers()

    async def remove_what_expires(self) -> None:
        """Remove expired delegation tokens, until cancelled."""
        while True:
            await trio.sleep(self._config["delegation.token.expiry.check.interval.ms"] / 1000)
            await self.remove_expired()

    async def remove_expired(self) -> None:
        """Remove expired delegation tokens."""
        async with self._topics.changes:
            now, tokens = self._clock.wall_ms(), self._metadata.tokens.by_id
            gone = [RemoveDelegationTokenRecord(each.id) for each in tokens.values() if each.is_expired(now)]
            if gone:
                try:
                    await self._topics.commit(list[Message](gone))
                except KafkaError as error:  # the next round tries again
                    self._log.warning("tokens.not.removed", reason=error)

    async def _run_checkers(self) -> None:
        running: dict[TokenChecker, trio.CancelScope] = {}
        async with trio.open_nursery() as nursery:
            while True:
                wanted = set(self._checkers.values())
                for gone in running.keys() - wanted:
                    running.pop(gone).cancel()
                for checker in wanted - running.keys():
                    running[checker] = trio.CancelScope()
                    nursery.start_soon(_run, checker, running[checker])
                self._checkers_changed = trio.Event()
                await self._checkers_changed.wait()

    def accepted(self, context: Context, login: Login, *, is_new: bool) -> None:
        """A client has logged in."""
        where = context.connection.host, context.connection.listener
        self._audit.logged_in(login.principal, login.mechanism, *where, is_new=is_new)

    def refused(self, context: Context, mechanism: str, reason: str, who: str) -> None:
        """A client could not log in."""
        self._audit.not_let_in(who, mechanism, context.connection.host, context.connection.listener, reason)

    def checkers(self) -> list[TokenChecker]:
        """The token checkers of the listeners with OAUTHBEARER."""
        return list(self._checkers.values())

    def settings_changed(self) -> None:
        """Take over the current settings; if they cannot be served, the previous ones stay."""
        try:
            self._read()
        except ConfigError as error:
            self._log.error("authentication.settings.refused", reason=error)

    def _read(self) -> None:
        self._of = {each.name: self._mechanisms(each) for each in self._config.listeners if each.protocol.has_sasl}
        gone = [name for name in self._checkers if "OAUTHBEARER" not in self._of[name]]
        for name in gone:
            del self._checkers[name]
        if gone:
            self._checkers_changed.set()

    def trust_driver(self, secret: str) -> None:
        """Trust a client that knows this secret to be the driver."""
        self._driver = _credential(DRIVER_SCRAM, secret)

    def trust_nodes(self, secret: str) -> None:
        """Trust a client that knows this secret, on the nodes' listener, to be a node."""
        known = Found(_credential(NODE_SCRAM, secret), Identified(NODE))

        def find(name: str, mechanism: str) -> Found | None:
            return known if name == NODE_NAME else None

        self._nodes = {NODE_MECHANISM: Mechanism(lambda: ScramExchange(NODE_SCRAM, find, _nobody))}

    def login(self, listener: Listener) -> Login | None:
        """The login of a new connection of a listener; None if clients do not log in there."""
        if listener.name == NODES:
            return Login({}, self._nodes)
        if not listener.protocol.has_sasl:
            return None
        return Login(self._of[listener.name], self._hidden())

    def drivers_login(self) -> Login:
        """The login for the driver on a listener where clients do not log in."""
        return Login({}, self._hidden())

    def _hidden(self) -> dict[str, Mechanism]:
        def find(name: str, mechanism: str) -> Found | None:
            is_driver = name == DRIVER_NAME and self._driver is not None
            return Found(self._driver, Identified(DRIVER)) if is_driver and self._driver is not None else None

        return {DRIVER_MECHANISM: Mechanism(lambda: ScramExchange(DRIVER_SCRAM, find, _nobody))}

    def _mechanisms(self, listener: Listener) -> dict[str, Mechanism]:
        """The mechanisms of a listener. Raises ConfigError."""
        config, name = self._config, listener.name
        check_mechanisms(config.of(name, "sasl.enabled.mechanisms"))  # the default is not served
        return {
            each: Mechanism(self._beginning(listener, each), config.of(name, "connections.max.reauth.ms", each))
            for each in config.of(name, "sasl.enabled.mechanisms")
        }

    def _beginning(self, listener: Listener, mechanism: str) -> Callable[[], Exchange]:
        entry = self._config.jaas_of(listener.name, mechanism)
        if mechanism == "PLAIN":
            if entry is None:
                raise ConfigError(
                    f"Listener {listener.name}: PLAIN has no users; set listener.name.{listener.name.lower()}.plain."
                    "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required "
                    'user_NAME="PASSWORD";'
                )
            return partial(PlainExchange, users_of(entry.options))
        if mechanism == "OAUTHBEARER":
            checker = TokenChecker.of(self._config, listener.name, self._clock, self._log)
            known = self._checkers.get(listener.name)
            if known is None or known.settings != checker.settings:
                self._checkers[listener.name] = known = checker
                self._checkers_changed.set()
            return partial(OAuthExchange, known)
        return partial(ScramExchange, mechanism, self._user, self._token, self._metadata.credentials.usual)

    def _user(self, name: str, mechanism: str) -> Found | None:
        known = self._metadata.credentials.find(name, mechanism)
        return None if known is None else Found(known, Identified(parse_principal(f"User:{name}")))

    def _token(self, token_id: str, mechanism: str) -> Found | None:
        token, secret = self._metadata.tokens.by_id.get(token_id), self._config["delegation.token.secret.key"]
        if token is None or secret is None or token.is_expired(self._clock.wall_ms()):
            return None
        expires = min(token.max_ms, token.expires_ms)
        return Found(
            token.credential(mechanism, secret), Identified(parse_principal(token.owner), expires, by_token=True)
        )


def _credential(mechanism: str, secret: str) -> scram.Credential:
    salt = secrets.token_bytes(16)
    salted = scram.salted_password(mechanism, secret, salt, scram.MIN_ITERATIONS)
    return scram.credential(mechanism, salted, salt, scram.MIN_ITERATIONS)


async def _run(checker: TokenChecker, scope: trio.CancelScope) -> None:
    with scope:
        await checker.run()


def _nobody(name: str, mechanism: str) -> None:
    return None
