"""The result of a scrape, as Prometheus reads it."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Container, Iterator, Mapping
from typing import Any

from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as plain

from delayq.model.validation import Kind

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


class Scrape:
    """The samples of a page."""

    def __init__(self, text: str, is_openmetrics: bool = False) -> None:
        families = (openmetrics if is_openmetrics else plain)(text)
        self.families = {family.name: family for family in families}
        self.samples = [sample for family in self.families.values() for sample in family.samples]

    def value(self, name: str, **labels: str) -> float:
        """The value of the single sample with these labels."""
        (value,) = (each.value for each in self.samples if each.name == name and _has(each.labels, labels))
        return float(value)

    def values(self, names: Container[str], **labels: str) -> list[float]:
        """The values of all samples with these names and labels."""
        return [float(each.value) for each in self.samples if each.name in names and _has(each.labels, labels)]

    def names(self, **labels: str) -> set[str]:
        """The names of all samples with these labels."""
        return {each.name for each in self.samples if _has(each.labels, labels)}


def _has(labels: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    return all(labels.get(name) == value for name, value in wanted.items())


def get(url: str, accept: str = "", seconds: float = 60, host: str = "") -> tuple[int, str, Any]:
    """Fetch a page, perhaps under another host name; return its status, text and headers."""
    headers = {name: value for name, value in {"Accept": accept, "Host": host}.items() if value}
    request = urllib.request.Request(url, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=seconds) as answer:
            return answer.status, answer.read().decode(), answer.headers
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode(), error.headers


class Found:
    """A search that has found some queues."""

    rests = False

    def __init__(self, queues: list[str]) -> None:
        self.names: dict[Kind, list[str]] = {"queue": queues, "topic": []}

    def steps(self) -> Iterator[None]:
        yield
