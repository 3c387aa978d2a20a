"""The docstring of each handler names the versions that are served."""

from __future__ import annotations

import importlib
import pkgutil
import re

import pytest

from barnabas.broker import apis
from barnabas.broker.registry import APIS

MODULES = [module.name for module in pkgutil.iter_modules(apis.__path__)]


@pytest.mark.parametrize("name", MODULES)
def test_a_handler_opens_with_its_versions(name: str) -> None:
    text = importlib.import_module(f"barnabas.broker.apis.{name}").__doc__ or ""
    head = re.match(r"(\w+) \((\d+)\), versions? (\d+)(?:-(\d+))?", text)
    assert head, text
    api = APIS[int(head[2])]
    first, last = int(head[3]), int(head[4] or head[3])
    assert (head[1], first, last) == (api.name, *api.versions)
    if first < last:
        spans = re.findall(r"Versions? (\d+)(?:-(\d+))?:", text)
        told = [version for low, high in spans for version in range(int(low), int(high or low) + 1)]
        assert sorted(set(told)) == list(range(first, last + 1))
