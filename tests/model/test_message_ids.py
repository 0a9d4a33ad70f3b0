"""New ids: their form, their order, and that no two are the same."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
import math
import os
import random
import re
import subprocess
import sys
import threading
import time
from itertools import chain
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delayq import content_id
from delayq.errors import PayloadNotSerializable
from delayq.model import message_ids
from delayq.model.message_ids import new_id, new_ids
from delayq.model.validation import check_id


@pytest.mark.parametrize("amount", [0, 1, 1000])
def test_new_ids_differ_and_consist_of_letters_and_digits(amount: int):
    ids = new_ids(amount)
    assert len(set(ids)) == len(ids) == amount
    assert all(re.fullmatch(r"[A-Za-z0-9]{14}", each) for each in ids)


def test_ids_rise_within_a_process(monkeypatch: pytest.MonkeyPatch):
    made = new_ids(5000)
    for later in (0.04, 0.09, 1, 86400, 0, -86400):  # the clock can be set back
        moment = time.time() + later
        monkeypatch.setattr("delayq.model.message_ids.time.time", lambda moment=moment: moment)
        made += [new_id(), *new_ids(10), new_id()]
    assert made == sorted(made)


def test_ids_rise_with_time_across_processes(monkeypatch: pytest.MonkeyPatch):
    made = []
    for tenths in range(0, 10**9, 10**8 - 7):
        monkeypatch.setattr("delayq.model.message_ids.time.time", lambda tenths=tenths: 1.8e9 + tenths / 10)
        made += message_ids._RisingIds().take(2)
    assert made == sorted(made)


def test_threads_make_no_id_twice():
    made: list[list[str]] = [[] for _ in range(8)]

    def make(ids: list[str]) -> None:
        for _ in range(500):
            ids += [new_id(), *new_ids(7)]

    threads = [threading.Thread(target=make, args=(ids,)) for ids in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(chain(*made))) == 8 * 500 * 8
    assert all(ids == sorted(ids) for ids in made)


def test_processes_make_no_id_twice():
    code = "from delayq.model import message_ids as m; m.time.time = lambda: 1.8e9; print(*m.new_ids(20000))"
    runs = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(3)]
    made = [run.communicate(timeout=60)[0].split() for run in runs]
    assert len(set(chain(*made))) == 60_000


def test_forked_process_makes_different_ids(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("delayq.model.message_ids.time.time", lambda: 1.8e9)
    message_ids._ids.begin()
    new_ids(10)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, " ".join(new_ids(100)).encode())
        os._exit(0)
    os.waitpid(child, 0)
    made = os.read(reading, 10_000).decode().split()
    os.close(reading)
    os.close(writing)
    assert len(set(made)) == 100
    assert not set(made) & set(new_ids(100))


def test_process_forked_behind_python_s_back_makes_different_ids(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("delayq.model.message_ids.time.time", lambda: 1.8e9)
    parents = message_ids._RisingIds()
    child = copy.deepcopy(parents)
    made = parents.take(100)
    monkeypatch.setattr("delayq.model.message_ids.os.getpid", lambda: -1)
    assert not set(made) & set(child.take(100))


@dataclasses.dataclass
class Order:
    number: int
    items: set[str]


def test_content_id_does_not_depend_on_the_order_of_keys_or_sets():
    ids = {
        content_id({"number": 5, "items": ["a", "b"]}),
        content_id({"items": {"b", "a"}, "number": 5}),
        content_id(Order(5, {"a", "b"})),
    }
    assert len(ids) == 1


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        ({"b": [1, 2.5, None], "a": "é"}, "08a0e177a123adfb1bfbca2a081663c0"),
        ({10: True, 2: {"y": 1, "x": 2}}, "90a32c0054f6a4889e76f6086083f059"),
        ("text", "1a33b2a097829e0fa665bea564245879"),
        (b"text", "f28d9cc4a17d0c58fa49e7cf5facde3b"),
        (None, "47ae1fc702976ed32c35f337b5efb684"),
    ],
)
def test_content_id_is_the_same_in_every_version_and_process(payload: Any, expected: str):
    assert content_id(payload) == expected


def test_content_id_can_be_computed_without_delayq():
    canonical = json.dumps({"b": [1, 2.5], "a": "é"}, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert content_id({"b": [1, 2.5], "a": "é"}) == hashlib.sha256(b"json:" + canonical.encode()).hexdigest()[:32]
    assert content_id(b"\x00") == hashlib.sha256(b"raw:\x00").hexdigest()[:32]


@given(st.dictionaries(st.text(), st.integers() | st.text() | st.none()), st.randoms())
def test_content_id_ignores_the_order_of_keys(payload: dict[str, Any], lot: random.Random):
    names = list(payload)
    lot.shuffle(names)
    assert content_id({name: payload[name] for name in names}) == content_id(payload)


def test_content_ids_of_different_payloads_differ():
    payloads = [b"1", "1", 1, 1.0, True, None, [1], [[1]], {"1": 1}, {"1": "1"}, [1, 2], [2, 1], "", b""]
    assert len({content_id(payload) for payload in payloads}) == len(payloads)


def test_content_id_is_a_valid_id():
    assert check_id(content_id({"to": "ann"})) == content_id({"to": "ann"})


def test_content_id_refuses_unsendable_and_unorderable_payloads():
    with pytest.raises(PayloadNotSerializable, match="NaN"):
        content_id([math.nan])
    with pytest.raises(PayloadNotSerializable, match="type object"):
        content_id(object())
    with pytest.raises(PayloadNotSerializable, match=r"cannot be sorted.*use a list"):
        content_id([{1, "a"}])
