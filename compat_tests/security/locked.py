"""A locked broker, made by the steps of docs/security.md: one listener, TLS, logins, ACLs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from compat_tests.broker_process import Barnabas
from compat_tests.security.certificates import Authority
from compat_tests.security.clients import Security
from compat_tests.tools import ROOT
from compat_tests.waiting import DEADLINE

ADMIN, PASSWORD = "admin", "admin-secret"


class LockedBroker(Barnabas):
    """`admin` is its super user, created before its first start. Commands create other users and their rights."""

    def __init__(self, folder: Path, **settings: str) -> None:
        authority = Authority()
        folder.mkdir(parents=True, exist_ok=True)
        self.ca = Path(authority.trust_pem(folder / "ca.pem"))
        super().__init__(
            folder,
            {
                "listeners": "SASL_SSL://127.0.0.1:0",
                "sasl.enabled.mechanisms": "SCRAM-SHA-512",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": authority.issue().pem(folder / "broker.pem"),
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": f"User:{ADMIN}",
                **settings,
            },
        )

    def start(self) -> None:
        if not self.data_dir.exists():
            self.run("users", "add", ADMIN, "--data-dir", str(self.data_dir), password=PASSWORD)
        super().start()

    def security(self, user: str = ADMIN, password: str = PASSWORD) -> Security:
        return Security("SCRAM-SHA-512", user, password, self.ca)

    def config(self, user: str = ADMIN, password: str = PASSWORD) -> Path:
        """Write the `client.properties` of a user; returns its path."""
        return self.security(user, password).write(self.folder)

    def run(self, *words: str, password: str | None = None, check: bool = True) -> str:
        """The output of a `barnabas` command; with `check=False`, the error with which it must fail."""
        variables = {"PYTHONPATH": str(ROOT), **({"BARNABAS_PASSWORD": password} if password else {})}
        done = subprocess.run(
            [sys.executable, "-m", "barnabas", *words],
            env=os.environ | variables,
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            stdin=subprocess.DEVNULL,
        )
        assert (done.returncode == 0) == check, done.stderr
        return done.stdout if check else done.stderr

    def ask(self, *words: str, user: str = ADMIN, password: str = PASSWORD, check: bool = True) -> str:
        """Run a command against this broker, as a user."""
        config = str(self.config(user, password))
        return self.run(*words, "-b", self.address, "--command-config", config, check=check)

    def add_user(self, user: str, password: str) -> None:
        config = str(self.config())
        self.run("users", "add", user, "-b", self.address, "--command-config", config, password=password)

    def allow(self, user: str, *words: str) -> None:
        """Give a user a right, in words of `barnabas acls add`: --operation, --topic and so on."""
        self.ask("acls", "add", "--allow-principal", f"User:{user}", *words)

    def forbid(self, user: str, *words: str) -> None:
        """Take a right away from a user."""
        self.ask("acls", "remove", "--force", "--allow-principal", f"User:{user}", *words)
