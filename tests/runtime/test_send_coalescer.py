"""Group commit without a server: which thread sends for which, and that interrupts leave nobody waiting for ever."""

from __future__ import annotations

import contextlib
import ctypes
import datetime as dt
import dis
import functools
import gc
import itertools
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import CodeType, FrameType
from typing import Any

import pytest

from delayq import SentMessage
from delayq.errors import DelayqError, ServerOutOfMemory, ServerUnreachable
from delayq.operations.encode import EncodedMessage
from delayq.runtime import send_coalescer
from delayq.runtime.send_coalescer import SendCoalescer
from tests.harness.waiting import eventually

DUE = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
PATIENCE = 240.0  # seconds after which a thread counts as hung


class Interrupt(BaseException):
    """Ends a thread's work wherever it is, as KeyboardInterrupt does."""


class Server:
    """Receives what a coalescer sends.

    Attributes:
        batches: the ids of each call, in the order in which the calls began.
        gate: calls wait until it is open, as it is until a test closes it.
        answer: what a call does after that, given the ids of its batch.
    """

    def __init__(self, answer: Callable[[list[str]], None] = lambda _: None) -> None:
        self.batches: list[list[str]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.answer = answer

    def send(self, batch: Sequence[EncodedMessage]) -> list[SentMessage]:
        ids = [message.id for message in batch]
        self.batches.append(ids)
        if not self.gate.wait(PATIENCE):
            raise AssertionError("the test has forgotten to open the gate")
        self.answer(ids)
        return [SentMessage(message_id, DUE, True) for message_id in ids]


class Sender(threading.Thread):
    """Sends one message, and keeps the result.

    Args:
        interrupt_at: raise Interrupt at the n-th place in the coalescer's module where Python lets a signal
            handler run: after a call, at a function's begin, at a loop's end. The thread then sends its message again.

    Attributes:
        place: how many such places it has reached.
        line: the line at which it was interrupted.
    """

    def __init__(self, box: SendCoalescer, message_id: str, interrupt_at: int = 0) -> None:
        super().__init__(daemon=True)
        self.box, self.id, self.interrupt_at = box, message_id, interrupt_at
        self.place = self.line = 0
        self.result: SentMessage | None = None
        self.error: BaseException | None = None
        self._last: dict[FrameType, str] = {}
        self.start()

    def run(self) -> None:
        try:
            sys.settrace(self._trace if self.interrupt_at else None)
            self.result = self.box.send(encoded(self.id))
        except BaseException as error:  # noqa: BLE001  # it is what the test looks at
            self.error = error
        finally:
            sys.settrace(None)
        if self.interrupt_at and isinstance(self.error, Interrupt):
            self.result = self.box.send(encoded(self.id))

    def _trace(self, frame: FrameType, event: str, _value: Any) -> Any:
        if frame.f_code.co_filename != send_coalescer.__file__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            last, self._last[frame] = self._last.get(frame, ""), instructions(frame.f_code)[frame.f_lasti]
            self.place += last.startswith(("CALL", "RESUME")) or "JUMP_BACKWARD" in last
            if self.place == self.interrupt_at:
                self.line = frame.f_lineno
                raise Interrupt
        return self._trace

    @property
    def has_own_result(self) -> bool:
        return self.result == SentMessage(self.id, DUE, True)


@functools.cache
def instructions(code: CodeType) -> dict[int, str]:
    """The names of a function's instructions, by offset."""
    return {each.offset: each.opname for each in dis.get_instructions(code)}


def encoded(message_id: str) -> EncodedMessage:
    return EncodedMessage(message_id, "+0", b"{}", "ignore", True)


def waits(box: SendCoalescer, message_id: str) -> bool:
    """Whether a message waits for another thread to send it."""
    return any(each.encoded.id == message_id for each in list(box._waiting))


def ended(*senders: threading.Thread) -> bool:
    deadline = time.monotonic() + PATIENCE
    for sender in senders:
        sender.join(max(0.0, deadline - time.monotonic()))
    return not any(sender.is_alive() for sender in senders)


def queued(server: Server, box: SendCoalescer, ids: Sequence[str]) -> list[Sender]:
    """Senders: the first is in its call, and the others wait in order. The gate is closed."""
    server.gate.clear()
    senders = [Sender(box, ids[0])]
    assert eventually(lambda: [ids[0]] in server.batches)
    for message_id in ids[1:]:
        senders.append(Sender(box, message_id))
        assert eventually(lambda: waits(box, senders[-1].id))
    return senders


def test_lone_sender_always_sends_at_once() -> None:
    server = Server()
    box = SendCoalescer(server.send)
    assert [box.send(encoded(each)) for each in "abc"] == [SentMessage(each, DUE, True) for each in "abc"]
    assert server.batches == [["a"], ["b"], ["c"]]


def test_messages_that_come_meanwhile_go_in_one_batch_in_order() -> None:
    server = Server()
    box = SendCoalescer(server.send)
    senders = queued(server, box, "abcde")
    server.gate.set()
    assert ended(*senders)
    assert server.batches == [["a"], ["b", "c", "d", "e"]]
    assert all(sender.has_own_result for sender in senders)


def test_messages_that_come_while_a_batch_is_sent_go_in_the_next_one() -> None:
    server = Server()
    box = SendCoalescer(server.send)
    more: list[Sender] = []

    def answer(ids: list[str]) -> None:
        if ids == ["b", "c"]:
            more.extend(Sender(box, each) for each in "de")
            assert eventually(lambda: all(waits(box, each) for each in "de"))

    server.answer = answer
    senders = queued(server, box, "abc")
    server.gate.set()
    assert ended(*senders)
    assert ended(*more)
    assert [sorted(batch) for batch in server.batches] == [["a"], ["b", "c"], ["d", "e"]]
    assert all(sender.has_own_result for sender in [*senders, *more])


def test_message_whose_result_comes_while_its_thread_looks_for_the_leader_is_not_sent_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server, sent = Server(), SentMessage("m", DUE, True)
    box = SendCoalescer(server.send)
    mine = send_coalescer._PendingSend(encoded("m"), 1)

    class Ended(set[int]):
        """The calls; the leader's ends just before they are asked for it."""

        def __contains__(self, _: object) -> bool:
            mine.result = sent
            return False

    monkeypatch.setattr(send_coalescer, "LOOK_UP_SECONDS", 0.001)
    monkeypatch.setattr(box, "_calls", Ended())
    assert box._wait(mine) is sent
    assert server.batches == []


def test_thread_that_sends_from_within_a_send_does_not_share_with_itself() -> None:
    server = Server()
    box = SendCoalescer(server.send)
    ids = [f"{thread}-{number}" for thread in range(20) for number in range(50)]
    results: list[SentMessage] = []

    def send(thread: int) -> None:
        for number in range(50):
            results.append(box.send(encoded(f"{thread}-{number}")))  # noqa: PERF401  # each is to be seen at once

    threads = [threading.Thread(target=send, args=(thread,), daemon=True) for thread in range(20)]
    for thread in threads:
        thread.start()
    assert ended(*threads)
    assert sorted(result.id for result in results) == sorted(itertools.chain(*server.batches)) == sorted(ids)
    for batch in server.batches:
        assert len({message_id.partition("-")[0] for message_id in batch}) == len(batch)


# -- errors ----------------------------------------------------------------------------------------------------------


def test_error_of_a_lone_sender_does_not_affect_the_next() -> None:
    def refuse(ids: list[str]) -> None:
        if ids == ["a"]:
            raise ServerUnreachable("no way")

    box = SendCoalescer(Server(refuse).send)
    with pytest.raises(ServerUnreachable, match="no way"):
        box.send(encoded("a"))
    assert box.send(encoded("b")).id == "b"


def test_each_thread_of_the_batch_gets_its_own_copy_of_the_error() -> None:
    cause = ValueError("the true one")

    def refuse(ids: list[str]) -> None:
        if ids == ["b", "c", "d"]:
            raise ServerOutOfMemory("the memory is full") from cause

    server = Server(refuse)
    box = SendCoalescer(server.send)
    senders = queued(server, box, "abcd")
    server.gate.set()
    assert ended(*senders)
    errors = [sender.error for sender in senders[1:]]
    assert [type(error) for error in errors] == [ServerOutOfMemory] * 3
    assert [str(error) for error in errors] == ["the memory is full"] * 3
    assert [error.__cause__ for error in errors if error] == [cause] * 3
    assert len({id(error) for error in errors}) == 3
    assert senders[0].has_own_result
    assert box.send(encoded("e")).id == "e"


def test_foreign_error_does_not_leave_the_others_waiting() -> None:
    def fail(ids: list[str]) -> None:
        if "b" in ids:
            raise ZeroDivisionError

    server = Server(fail)
    box = SendCoalescer(server.send)
    senders = queued(server, box, "abcd")
    server.gate.set()
    assert ended(*senders)
    assert isinstance(senders[1].error, ZeroDivisionError)
    assert [sender.has_own_result for sender in senders] == [True, False, True, True]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, Interrupt])
@pytest.mark.parametrize("after", [False, True])
def test_batch_of_an_interrupted_leader_is_sent_by_the_next_leader(kind: type[BaseException], after: bool) -> None:
    """Nobody knows whether the server had received it (`after`) or not, so it is sent again."""
    server = Server()
    box = SendCoalescer(server.send)

    def send(batch: Sequence[EncodedMessage]) -> list[SentMessage]:
        results = server.send(batch) if after or batch[0].id != "b" else []
        if batch[0].id == "b":
            raise kind
        return results

    box = SendCoalescer(send)
    senders = queued(server, box, "abcd")
    server.gate.set()
    assert ended(*senders)
    assert isinstance(senders[1].error, kind)
    assert [sender.has_own_result for sender in senders] == [True, False, True, True]
    assert server.batches == [["a"], *([["b", "c", "d"]] if after else []), ["c", "d"]]


def test_every_leader_in_turn_can_be_interrupted() -> None:
    def interrupt(ids: list[str]) -> None:
        if ids[0] in "abcd":
            raise Interrupt

    server = Server(interrupt)
    box = SendCoalescer(server.send)
    senders = queued(server, box, "abcde")
    server.gate.set()
    assert ended(*senders)
    assert server.batches == [["a"], ["b", "c", "d", "e"], ["c", "d", "e"], ["d", "e"], ["e"]]
    assert [sender.has_own_result for sender in senders] == [False, False, False, False, True]
    assert box.send(encoded("f")).id == "f"


# -- interrupts at any place -----------------------------------------------------------------------------------------


def interrupted(role: str, at: int) -> tuple[int, str]:
    """Interrupt a sender at one place. Return how many places it reached, and what then went wrong for the others.

    Args:
        role: which sender it is: the "first", which sends alone; the "leader" of the batch that gathers; a "follower"
            in it, between others.
    """
    server = Server()
    box = SendCoalescer(server.send)
    server.gate.clear()
    others: list[Sender] = []

    def come(sender: Sender) -> Sender:
        """Wait until a sender's message is in a call or waits, or the sender has ended."""

        def has_come() -> bool:
            is_sent = any(sender.id in batch for batch in server.batches)
            return is_sent or waits(box, sender.id) or not sender.is_alive()

        assert eventually(has_come)
        return sender

    def join(ids: str) -> None:
        others.extend(come(Sender(box, message_id)) for message_id in ids)

    join({"first": "", "leader": "f", "follower": "fl"}[role])
    victim = come(Sender(box, "v", at))
    join("xyz")
    server.gate.set()
    fault = ""
    if not ended(victim, *others):
        fault = "some wait for ever"
    else:
        join("w")
        if not ended(*others):
            fault = "the next sender waits for ever"
        elif wrong := [sender for sender in [victim, *others] if not sender.has_own_result]:
            fault = f"{wrong[0].id} got {wrong[0].error!r}, {wrong[0].result}"
    return victim.place, fault and f"{role} interrupted at place {at}, line {victim.line}: {fault}"


@pytest.mark.skipif(sys.version_info[:2] == (3, 12), reason="Python 3.12 crashes when it traces one of several threads")
@pytest.mark.parametrize("role", ["first", "leader", "follower"])
def test_thread_interrupted_at_any_place_leaves_nobody_waiting(role: str) -> None:
    """Interrupts one place after another, many at the same time, each with its own coalescer."""
    most, fault = interrupted(role, sys.maxsize)
    assert most > 5
    assert not fault
    with ThreadPoolExecutor(16) as pool:
        runs = list(pool.map(functools.partial(interrupted, role), range(1, most + 1)))
    assert [fault for _, fault in runs if fault] == []


class Restless(threading.Thread):
    """Sends one message after another, and may be interrupted at most once per message."""

    def __init__(self, box: SendCoalescer, name: str, count: int, begin: threading.Event) -> None:
        super().__init__(daemon=True)
        self.box, self.label, self.count, self.begin = box, name, count, begin
        self.got: Counter[str] = Counter()
        self.at: str | None = None
        self._lock = threading.Lock()
        self._open = False
        self.start()

    def run(self) -> None:
        self.begin.wait()
        for number in range(self.count):
            self.at = f"{self.label}-{number}"
            try:
                try:
                    with self._lock:
                        self._open = True
                    what = "right" if self.box.send(encoded(self.at)).id == self.at else "wrong"
                except DelayqError:
                    what = "refused"
                with self._lock:  # an interrupt on its way strikes here at the latest
                    self._open = False
            except Interrupt:
                what = "interrupted"
            self.got[what] += 1

    def interrupt(self) -> None:
        """Raise Interrupt in it, unless it is between two messages or was already interrupted in this one."""
        with self._lock:
            if self._open:
                self._open = False
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self.ident or 0), ctypes.py_object(Interrupt))


@pytest.fixture
def frequent_switches() -> Iterator[None]:
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    gc.disable()  # an interrupt that strikes in another library's gc callback gives a warning of its own
    yield
    gc.enable()
    sys.setswitchinterval(usual)


@pytest.mark.full
@pytest.mark.usefixtures("frequent_switches")
@pytest.mark.parametrize("seed", range(2))
def test_hundreds_of_threads_interrupted_at_random_all_finish(seed: int) -> None:
    dice, begin = random.Random(seed), threading.Event()

    def send(batch: Sequence[EncodedMessage]) -> list[SentMessage]:  # an Event's lock could stay taken
        time.sleep(0.0005)
        if batch[0].id.endswith("7"):
            raise ServerUnreachable("now and then")
        return [SentMessage(message.id, DUE, True) for message in batch]

    box = SendCoalescer(send)
    senders = [Restless(box, f"t{number}", 25, begin) for number in range(200)]
    begin.set()
    deadline = time.monotonic() + PATIENCE
    while any(sender.is_alive() for sender in senders) and time.monotonic() < deadline:
        for sender in dice.sample(senders, 40):
            sender.interrupt()
        time.sleep(0.001)
    assert [sender.label for sender in senders if sender.is_alive()] == []
    total = sum((sender.got for sender in senders), Counter())
    assert total["wrong"] == 0
    assert sum(total.values()) == 200 * 25
    assert total["interrupted"] > 0
    assert total["refused"] > 0
    assert ended(Sender(box, "last"))


# -- signals ---------------------------------------------------------------------------------------------------------


OnSignal = Callable[[Callable[[], None]], None]


@pytest.fixture
def on_signal() -> Iterator[OnSignal]:
    """``on_signal(do)``: what SIGUSR1 does in the main thread, where the test runs."""
    before = signal.getsignal(signal.SIGUSR1)
    yield lambda do: (signal.signal(signal.SIGUSR1, lambda *_: do()), None)[1]
    signal.signal(signal.SIGUSR1, before)


class Turn:
    """An entry's lock that reports when its thread asks for it."""

    def __init__(self, lock: Any) -> None:
        self.is_asked_for = threading.Event()
        self.release = lock.release
        self._lock = lock

    def acquire(self, timeout: float) -> bool:
        self.is_asked_for.set()
        return bool(self._lock.acquire(timeout=timeout))


def signalled(box: SendCoalescer, main: int, then: Callable[[], object]) -> threading.Thread:
    """A thread that sends SIGUSR1 to the main thread while that one waits for its turn, and then does something."""

    def run() -> None:
        assert eventually(lambda: waits(box, "main"))
        (entry,) = (each for each in box._waiting if each.encoded.id == "main")
        turn: Any = Turn(entry.turn)
        entry.turn = turn
        assert turn.is_asked_for.wait(PATIENCE)
        signal.pthread_kill(main, signal.SIGUSR1)
        then()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def test_wait_ended_by_a_signal_does_not_affect_others(on_signal: OnSignal) -> None:
    raised = threading.Event()

    def end() -> None:
        raised.set()
        raise Interrupt

    on_signal(end)
    server = Server()
    box = SendCoalescer(server.send)
    before = queued(server, box, "ab")
    after: list[Sender] = []

    def go_on() -> None:
        raised.wait(PATIENCE)
        after.append(Sender(box, "c"))
        assert eventually(lambda: waits(box, "c"))
        server.gate.set()

    helper = signalled(box, threading.get_ident(), go_on)
    with pytest.raises(Interrupt):
        box.send(encoded("main"))
    assert ended(helper)
    assert ended(*before, *after)
    assert all(sender.has_own_result for sender in [*before, *after])
    assert server.batches == [["a"], ["b", "c"]]  # and unsent messages are no longer sent


def test_signal_handler_can_send_while_its_thread_waits(on_signal: OnSignal) -> None:
    results: list[SentMessage] = []
    server = Server()
    box = SendCoalescer(server.send)
    (first,) = queued(server, box, "a")

    def send() -> None:
        server.gate.set()
        results.append(box.send(encoded("from the handler")))

    on_signal(send)
    helper = signalled(box, threading.get_ident(), lambda: None)
    assert box.send(encoded("main")).id == "main"
    assert ended(first, helper)
    assert [result.id for result in results] == ["from the handler"]
    assert ["from the handler"] in server.batches


def test_signal_handler_can_send_while_its_thread_sends(on_signal: OnSignal) -> None:
    results: list[SentMessage] = []

    def answer(ids: list[str]) -> None:
        if ids == ["main"]:
            signal.raise_signal(signal.SIGUSR1)

    server = Server(answer)
    box = SendCoalescer(server.send)
    on_signal(lambda: results.append(box.send(encoded("from the handler"))))
    assert box.send(encoded("main")).id == "main"
    assert [result.id for result in results] == ["from the handler"]
    assert server.batches == [["main"], ["from the handler"]]
    assert box.send(encoded("later")).id == "later"


@pytest.mark.parametrize("lasting", [False, True])
def test_signal_handler_can_send_at_any_place_of_the_coalescer(lasting: bool) -> None:
    """Like a signal handler, a trace function runs between two lines of the thread that it interrupts."""
    server = Server()
    box = SendCoalescer(server.send)
    sent: list[str] = []

    def trace(frame: FrameType, _event: str, _value: Any) -> Any:
        if frame.f_code.co_filename != send_coalescer.__file__:
            return None
        sys.settrace(None)
        frame.f_trace = None
        sent.append(box.send(encoded(f"handler-{len(sent)}")).id)
        if lasting:
            sys.settrace(trace)
        frame.f_trace = trace
        return trace

    def send() -> None:
        sys.settrace(trace)
        try:
            assert box.send(encoded("main")).id == "main"
        finally:
            sys.settrace(None)

    with ThreadPoolExecutor(1) as pool:
        pool.submit(send).result(PATIENCE)
    assert sent
    assert box.send(encoded("later")).id == "later"


# -- forks -----------------------------------------------------------------------------------------------------------


def in_child(send: Callable[[], object]) -> bool:
    """Fork, run a function in the child, and return whether it succeeded there."""
    child = os.fork()
    if child == 0:
        code = 1
        with contextlib.suppress(BaseException):
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(int(PATIENCE))
            send()
            code = 0
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("forker", ["main", "thread"])
def test_child_forked_while_others_sent_and_waited_can_send(forker: str) -> None:
    server = Server()
    box = SendCoalescer(server.send)
    senders = queued(server, box, "abc")

    def send() -> None:
        server.gate.set()
        for each in "xy":
            assert box.send(encoded(each)).id == each
        assert server.batches == [["a"], ["x"], ["y"]]  # none of the waiting threads exists here
        others = [Sender(box, each) for each in "pqr"]
        assert ended(*others)
        assert all(other.has_own_result for other in others)

    if forker == "main":
        assert in_child(send)
    else:
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(in_child, send).result()
    server.gate.set()
    assert ended(*senders)
    assert server.batches == [["a"], ["b", "c"]]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_child_forked_within_a_send_can_send() -> None:
    children: list[bool] = []

    def answer(ids: list[str]) -> None:
        if ids == ["a"]:
            children.append(in_child(lambda: box.send(encoded("child"))))

    box = SendCoalescer(Server(answer).send)
    assert box.send(encoded("a")).id == "a"
    assert children == [True]
