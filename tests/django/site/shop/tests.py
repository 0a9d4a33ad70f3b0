"""What a backend of Django's tasks has to do, on one database; `tests/django` runs it on several."""

import asyncio
import contextlib
import datetime as dt
import io
import os
import runpy
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import click
import django
import msgspec
from delayq.cli import main as cli
from django.conf import settings
from django.core import checks
from django.core.management import CommandError, call_command
from django.db import close_old_connections, connections, transaction
from django.test import AsyncRequestFactory, SimpleTestCase, TestCase, override_settings
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

import delayq
from delayq import Consumer, backoff
from delayq.django import DelayqTask, dashboard, framework, queues
from delayq.django.management.commands.delayq import _path_of_children
from delayq.django.models import OutboxRow
from delayq.django.options import Options
from delayq.django.outbox import url_of
from delayq.outbox import Relay, open_database
from delayq.types import TaskRuns
from shop import tasks as shop
from shop.framework import InvalidTask, base, exceptions, signals, tasks
from shop.models import Order

backends = tasks.task_backends
STATUS = base.TaskResultStatus


def queue(name="default", alias="default"):
    return backends[alias].queue(name)


def drain(*names, **options):
    for name in names or ("default",):
        Consumer(queue(name), **options).drain()


def drain_of(of):
    Consumer(of).drain()


def done(result, *names):
    drain(*(names or (result.task.queue_name,)))
    result.refresh()
    return result


class Live(SimpleTestCase):
    """Tests whose transactions commit. Each begins without orders and messages, which is quicker than a flush."""

    databases = {"default", "other"}

    def setUp(self):
        shop.NOTES.clear()
        Order.objects.all().delete()
        for name in ("default", "emails"):
            queue(name).purge()


class Enqueued(Live):
    """Enqueueing and results."""

    def test_arguments_arrive_as_django_allows_them(self):
        result = shop.add.enqueue(1, 2, 3, c=4, d={"e": (5,)})
        self.assertEqual(result.args, [1, 2, 3])
        self.assertEqual(queue().get(result.id).payload, {"args": [1, 2, 3], "kwargs": {"c": 4, "d": {"e": [5]}}})
        self.assertEqual(done(result).return_value, [1, 2, [3], 4, {"d": {"e": [5]}}])

    def test_async_task_reads_the_database(self):
        Order.objects.create(text="one")
        self.assertEqual(done(shop.mail.enqueue("a@example.org")).return_value, "a@example.org 1")

    async def test_async_calls(self):
        result = await shop.add.aenqueue(1)
        self.assertEqual((await shop.add.aget_result(result.id)).status, STATUS.READY)
        await tasks_in_thread(drain)
        await result.arefresh()
        self.assertEqual(result.return_value, [1, 1, [], 2, {}])

    def test_waiting_result_equals_the_enqueued_one(self):
        result = shop.add.enqueue(1)
        self.assertIsNotNone(result.enqueued_at)
        self.assertEqual(shop.add.get_result(result.id), result)

    def test_fields_of_a_successful_result(self):
        result = done(shop.add.enqueue(1))
        self.assertEqual(result.status, STATUS.SUCCESSFUL)
        self.assertLessEqual(result.enqueued_at, result.started_at)
        self.assertLessEqual(result.started_at, result.finished_at)
        self.assertEqual(result.last_attempted_at, result.started_at)
        self.assertEqual((result.attempts, len(result.worker_ids), result.errors), (1, 1, []))
        self.assertEqual((result.backend, result.task), ("default", shop.add))

    def test_fields_of_a_failed_result(self):
        result = done(shop.fail.enqueue("because"))
        self.assertEqual(result.status, STATUS.FAILED)
        [error] = result.errors
        self.assertIs(error.exception_class, ValueError)
        self.assertTrue(error.traceback.endswith("ValueError: because\n"), error.traceback)
        self.assertIn("tasks.py", error.traceback)
        with self.assertRaisesMessage(ValueError, "Task failed"):
            _ = result.return_value
        self.assertEqual(result.attempts, 1)

    def test_system_exit_is_a_failure(self):
        result = done(shop.leave.enqueue())
        self.assertEqual((result.status, result.errors[0].exception_class), (STATUS.FAILED, SystemExit))

    def test_result_that_is_not_json_is_a_failure_and_the_task_is_not_run_again(self):
        for task, kind in ((shop.unserializable, TypeError), (shop.not_a_number, delayq.DelayqError)):
            with self.subTest(task.name):
                result = done(retrying(task, 3).enqueue())
                self.assertEqual((result.status, result.attempts), (STATUS.FAILED, 1))
                self.assertTrue(issubclass(result.errors[0].exception_class, kind))
        self.assertEqual(shop.NOTES, ["ran"])

    def test_bytes_are_returned_as_text(self):
        self.assertEqual(done(shop.as_bytes.enqueue()).return_value, "text")

    def test_argument_that_is_not_json_is_refused_at_once(self):
        for wrong in (timezone.now(), object(), {1}):
            with self.assertRaises(TypeError):
                shop.add.enqueue(wrong)
        with transaction.atomic(), self.assertRaises(delayq.DelayqError):
            shop.add.enqueue(float("nan"))
        self.assertEqual(queue().stats().pending, 0)

    def test_unknown_results_do_not_exist(self):
        for wrong in ("123", "default:123", "nope:123", "", "x" * 300, "{}:1", 17):
            with self.assertRaises(exceptions.TaskResultDoesNotExist):
                backends["default"].get_result(wrong)

    def test_result_of_another_task_does_not_match(self):
        result = shop.add.enqueue(1)
        with self.assertRaises(exceptions.TaskResultMismatch):
            shop.fail.get_result(result.id)

    def test_cancelled_task_has_no_result(self):
        result = shop.add.enqueue(1)
        queue().cancel(result.id)
        with self.assertRaises(exceptions.TaskResultDoesNotExist):
            shop.add.get_result(result.id)

    def test_result_expires(self):
        record = queue().result(done(shop.add.enqueue(1)).id)
        kept = record.kept_until - record.finished_at
        self.assertLess(abs(kept - dt.timedelta(days=7)), dt.timedelta(minutes=1))
        options = {**backends["default"].options, "results": dt.timedelta(seconds=0.05)}
        with override_settings(TASKS={"default": {"BACKEND": "delayq.django.DelayqBackend", "OPTIONS": options}}):
            result = shop.add.enqueue(1)
            drain()
            time.sleep(0.1)
            with self.assertRaises(exceptions.TaskResultDoesNotExist):
                shop.add.get_result(result.id)

    def test_running_result_has_its_worker(self):
        with tempfile.TemporaryDirectory() as folder:
            go = Path(folder) / "go"
            result = shop.wait.enqueue(str(go))
            consumer = Consumer(queue())
            consumer.start()
            try:
                for _ in range(3000):
                    result.refresh()
                    if result.status == STATUS.RUNNING:
                        break
                    time.sleep(0.01)
                self.assertEqual(result.status, STATUS.RUNNING)
                self.assertEqual(result.attempts, 1)
                self.assertLess(abs(result.started_at - timezone.now()), dt.timedelta(seconds=60))
                self.assertIsNone(result.finished_at)
            finally:
                go.touch()
                consumer.stop()
        result.refresh()
        self.assertEqual((result.return_value, result.worker_ids), (os.getpid(), [consumer.name]))

    def test_using_queue_and_any_queue_name(self):
        result = shop.add.using(queue_name="a.b/c").enqueue(1)
        self.assertEqual(done(result).task.queue_name, "a.b/c")
        other = shop.add.using(backend="any", queue_name="whatever").enqueue(2)
        Consumer(queue("whatever", "any")).drain()
        other.refresh()
        self.assertEqual((other.return_value[0], other.task.backend, other.task.queue_name), (2, "any", "whatever"))

    def test_run_after_in_any_zone(self):
        for hours in (-11, 0, 5.5, 14):
            zone = dt.timezone(dt.timedelta(hours=hours))
            at = (timezone.now() + dt.timedelta(hours=1)).astimezone(zone).replace(microsecond=0)
            result = shop.add.using(run_after=at).enqueue(1)
            self.assertEqual(queue().get(result.id).due_at, at)
            self.assertEqual(shop.add.get_result(result.id).task.run_after, at)
        past = shop.add.using(run_after=timezone.now() - dt.timedelta(days=1)).enqueue(1)
        result = done(past)
        self.assertEqual(result.status, STATUS.SUCCESSFUL)
        self.assertEqual(shop.add.get_result(result.id).task.run_after, past.task.run_after)

    @override_settings(USE_TZ=False, TIME_ZONE="Asia/Kolkata")
    def test_naive_run_after_is_in_the_time_zone_of_the_site(self):
        at = dt.datetime(2040, 1, 2, 3, 4)
        result = shop.add.using(run_after=at).enqueue(1)
        self.assertEqual(queue().get(result.id).due_at, dt.datetime(2040, 1, 1, 21, 34, tzinfo=dt.UTC))
        again = shop.add.get_result(result.id)
        self.assertEqual(again.task.run_after, at)
        self.assertIsNone(again.enqueued_at.tzinfo)

    def test_context_counts_attempts(self):
        result = done(retrying(shop.attempts, 2).enqueue(fails=2))
        self.assertEqual(result.return_value, result.id)
        self.assertEqual([attempt for attempt, _ in shop.NOTES], [1, 2, 3])
        self.assertEqual([len(workers) for _, workers in shop.NOTES], [1, 2, 3])
        self.assertEqual((result.attempts, result.errors[-1].exception_class), (3, ConnectionError))
        self.assertLess(result.started_at, result.last_attempted_at)

    def test_failed_attempt_is_ready_again_until_its_last(self):
        result = retrying(shop.fail, 1).enqueue()
        drain()
        slow = Consumer(queue())
        result.refresh()
        self.assertEqual((result.status, result.attempts), (STATUS.FAILED, 2))
        queue().dead.requeue([result.id])
        result.refresh()
        self.assertEqual((result.status, result.finished_at, result.attempts), (STATUS.READY, None, 2))
        slow.drain()

    def test_no_retry_without_being_asked(self):
        self.assertEqual(done(shop.fail.enqueue()).attempts, 1)

    def test_max_retries_of_a_task(self):
        result = done(shop.fail.using(max_retries=2).enqueue()) if fast() else None
        self.assertEqual(result.attempts, 3)
        for wrong in (-1, True, "3", 10**7):
            with self.assertRaisesMessage(InvalidTask, "max_retries"):
                shop.fail.using(max_retries=wrong)

    @unittest.skipIf(django.VERSION[:2] == (6, 0), "this version's decorator takes no options of a backend")
    def test_decorator_takes_max_retries(self):
        made = tasks.task(max_retries=4)(shop.fail.func)
        self.assertEqual(made.max_retries, 4)
        self.assertEqual(made.using(queue_name="emails").max_retries, 4)

    def test_queue_is_checked_at_enqueue(self):
        elsewhere = shop.add.using(queue_name="emails")
        options = {"BACKEND": "delayq.django.DelayqBackend", "QUEUES": ["default"]}
        with override_settings(TASKS={"default": options}), self.assertRaisesMessage(InvalidTask, "'emails'"):
            elsewhere.enqueue(1)

    def test_tasks_are_of_the_class_of_the_backend(self):
        self.assertIsInstance(shop.add, DelayqTask)
        self.assertTrue(backends["default"].supports_defer)
        self.assertTrue(backends["default"].supports_async_task)
        self.assertTrue(backends["default"].supports_get_result)
        self.assertFalse(backends["default"].supports_priority)
        with self.assertRaises(InvalidTask):
            shop.add.using(priority=1)


class Paths(Live):
    """Only tasks run."""

    def test_path_of_something_else_does_not_run(self):
        for path in (
            "shop.tasks.not_a_task",
            "os.getpid",
            "shop.tasks.nope",
            "nope.nope",
            "nodots",
            "shop.tasks.NOTES",
        ):
            with self.subTest(path):
                queue().purge()
                sent = queue().send({"args": [], "kwargs": {}}, task=path, results=60)
                drain()
                self.assertEqual(queue().get(sent.id).state, "retry")  # another consumer may have it
                self.assertIn(path, queue().get(sent.id).error)
        self.assertEqual(shop.NOTES, [])

    def test_payload_of_another_shape_is_dead(self):
        for payload in ({"args": {}}, {"kwargs": []}, {"args": [1], "more": 2}):
            with self.subTest(payload):
                sent = queue().send(payload, task="shop.tasks.add", results=60)
                drain()
                self.assertEqual(queue().get(sent.id).reason, "payload-mismatch")

    def test_header_of_another_shape_is_an_error_of_its_message(self):
        for written in ("tomorrow", 5, "2040-01-02T03:04:05"):  # the last one without a zone
            with self.subTest(written):
                headers = {"django-run-after": written}
                sent = queue().send({"args": [1]}, task="shop.tasks.add", results=60, headers=headers, max_retries=0)
                with self.assertRaises(exceptions.TaskResultDoesNotExist):
                    backends["default"].get_result(sent.id)
                drain()
                self.assertIn("InvalidInput", queue().get(sent.id).error)

    def test_task_that_no_consumer_would_find_is_refused(self):
        hidden = tasks.task(shop.not_a_task)
        with self.assertRaisesMessage(InvalidTask, "not a task"):
            hidden.enqueue()


class Committed(Live):
    """A task is sent once its transaction commits."""

    def test_sent_on_commit(self):
        with transaction.atomic():
            order = Order.objects.create(text="new")
            result = shop.order_exists.enqueue(order.pk)
            self.assertIsNone(result.enqueued_at)
            self.assertEqual(queue().stats().pending, 0)
            with self.assertRaises(exceptions.TaskResultDoesNotExist):
                shop.order_exists.get_result(result.id)
        self.assertIsNotNone(result.enqueued_at)
        self.assertIs(done(result).return_value, True)

    def test_not_sent_after_a_rollback(self):
        for inner in (False, True):
            with self.subTest(inner), self.assertRaises(KeyError), transaction.atomic():
                with transaction.atomic():
                    result = shop.add.enqueue(1)
                raise KeyError
            self.assertIsNone(result.enqueued_at)
            with transaction.atomic():
                with self.assertRaises(KeyError), transaction.atomic():
                    shop.add.enqueue(2)
                    raise KeyError
        self.assertEqual(queue().stats().pending, 0)

    def test_commit_of_the_named_database_counts(self):
        with transaction.atomic(using="other"):
            shop.add.enqueue(1)
            self.assertEqual(queue().stats().pending, 1)
            shop.add.using(backend="other").enqueue(2)
            self.assertEqual(queue().stats().pending, 1)
        self.assertEqual(queue().stats().pending, 2)

    def test_without_autocommit_a_transaction_must_be_open(self):
        transaction.set_autocommit(False)
        try:
            with self.assertRaises(transaction.TransactionManagementError):
                shop.add.enqueue(1)
        finally:
            transaction.set_autocommit(True)

    def test_none_sends_at_once(self):
        with transaction.atomic():
            result = shop.add.using(backend="any", queue_name="default").enqueue(1)
            self.assertIsNotNone(result.enqueued_at)

    async def test_async_enqueue(self):
        result = await shop.add.aenqueue(1)
        self.assertIsNotNone(result.enqueued_at)

    def test_arguments_are_those_of_the_call(self):
        given = [1]
        with transaction.atomic():
            result = shop.add.enqueue(given)
            given.append(2)
        self.assertEqual(done(result).return_value[0], [1])


class InOutbox(Live):
    """Tasks in the outbox of the database."""

    def setUp(self):
        super().setUp()
        OutboxRow.objects.all().delete()

    def relay(self):
        relay = Relay(open_database(url_of("default")), settings.OPTIONS["url"], settle_seconds=0)
        try:
            relay.run(threading.Event(), burst=True)
        finally:
            relay.close()
        return relay.moved

    def test_committed_tasks_are_sent_by_the_relay(self):
        task = shop.add.using(backend="outbox")
        with transaction.atomic():
            result = task.enqueue(1, 2)
            self.assertIsNone(result.enqueued_at)
        self.assertIsNotNone(result.enqueued_at)
        with contextlib.suppress(ZeroDivisionError), transaction.atomic():
            task.enqueue(3)
            1 / 0
        self.assertEqual(OutboxRow.objects.count(), 1)
        self.assertRaises(exceptions.TaskResultDoesNotExist, result.refresh)
        self.assertEqual(self.relay(), 1)
        self.assertEqual(OutboxRow.objects.count(), 0)
        drain_of(queue(alias="outbox"))
        result.refresh()
        self.assertEqual(result.status, STATUS.SUCCESSFUL)
        self.assertEqual(result.return_value, [1, 2, [], 2, {}])

    def test_outside_a_transaction_each_task_is_one(self):
        shop.add.using(backend="outbox").enqueue(1, 2)
        self.assertEqual(OutboxRow.objects.count(), 1)
        self.assertEqual(self.relay(), 1)

    def test_tasks_of_a_transaction_run_in_their_order(self):
        with transaction.atomic():
            ids = [shop.add.using(backend="outbox").enqueue(number).id for number in range(20)]
        self.assertEqual(ids, sorted(ids))

    def test_commit_wakes_relays_of_postgresql_unless_it_is_turned_off(self):
        connection = connections["default"]
        for backend, notifies in ("outbox", connection.vendor == "postgresql"), ("quiet", False):
            with CaptureQueriesContext(connection) as queries:
                shop.add.using(backend=backend).enqueue(1, 2)
            [insert] = [each["sql"] for each in queries if "delayq_outbox" in each["sql"]]
            self.assertEqual("pg_notify" in insert, notifies)
        self.assertEqual(self.relay(), 2)

    def test_relay_has_a_connection_of_its_own(self):
        if connections["default"].vendor == "postgresql":
            with mock.patch.object(connections["default"], "get_new_connection", side_effect=AssertionError):
                database = open_database(url_of("default"))
                self.assertEqual(database.execute("SELECT 1"), [(1,)])
                database.close()

    def test_run_after_counts(self):
        soon = timezone.now() + dt.timedelta(hours=1)
        result = shop.add.using(backend="outbox", run_after=soon).enqueue(1, 2)
        self.relay()
        self.assertAlmostEqual(queue(alias="outbox").get(result.id).due_at, soon, delta=dt.timedelta(seconds=1))

    def test_migrations_are_complete(self):
        call_command("makemigrations", "delayq", "--check", "--dry-run", verbosity=0)

    def test_command_knows_the_database(self):
        shop.add.using(backend="outbox").enqueue(1, 2)
        with contextlib.redirect_stdout(io.StringIO()) as said:
            call_command("delayq", "--backend", "outbox", "relay", "--status")
        self.assertIn("1 row to send, the oldest for", said.getvalue())


class InTestCase(TestCase):
    """In a TestCase, whose transaction never commits."""

    def test_captured_commit_sends(self):
        queue().purge()
        with self.captureOnCommitCallbacks(execute=True):
            shop.add.enqueue(1)
            self.assertEqual(queue().stats().pending, 0)
        self.assertEqual(queue().stats().pending, 1)


class Runs(Live):
    """What surrounds a run."""

    def test_connections_are_closed_around_a_task(self):
        seen = []

        def close():
            seen.append("close")
            close_old_connections()

        with mock.patch("delayq.django.runs.close_old_connections", side_effect=close):
            with mock.patch("delayq.django.runs.reset_queries", side_effect=lambda: seen.append("reset")):
                done(shop.use_database.enqueue())
        self.assertEqual(seen, ["reset", "close", "close"])

    def test_stale_connection_is_replaced(self):
        drain_one = Consumer(queue(), concurrency=1)
        first, second = shop.use_database.enqueue(), shop.use_database.enqueue()
        drain_one.drain()
        for each in (first, second):
            each.refresh()
            self.assertEqual(each.status, STATUS.SUCCESSFUL)
        self.assertEqual(Order.objects.count(), 2)

    def test_signals(self):
        seen = []

        def note(sender, task_result, **kwargs):
            seen.append((sender.__name__, kwargs["signal"], str(task_result.status), task_result.attempts))

        three = (signals.task_enqueued, signals.task_started, signals.task_finished)
        for signal in three:
            signal.connect(note)
        try:
            done(shop.add.enqueue(1))
            fine, seen[:] = list(seen), []
            fast()
            done(shop.fail.using(max_retries=1).enqueue())
        finally:
            for signal in three:
                signal.disconnect(note)
        enqueued, started, finished = three
        name = "DelayqBackend"
        self.assertEqual(
            fine,
            [(name, enqueued, "READY", 0), (name, started, "RUNNING", 1), (name, finished, "SUCCESSFUL", 1)],
        )
        self.assertEqual(
            seen,
            [
                (name, enqueued, "READY", 0),
                (name, started, "RUNNING", 1),
                (name, started, "RUNNING", 2),
                (name, finished, "FAILED", 2),
            ],
        )

    def test_run_does_not_need_the_record_of_earlier_attempts(self):
        result = retrying(shop.attempts, 1).enqueue(fails=1)
        with mock.patch.object(delayq.Queue, "result", side_effect=delayq.ServerUnreachable("away")):
            drain()
        result.refresh()
        self.assertEqual((result.status, result.attempts), (STATUS.SUCCESSFUL, 2))
        self.assertEqual([workers[0] for _, workers in shop.NOTES][1:], ["unknown"])

    def test_runs_are_counted_by_task(self):
        before = queue().stats().tasks
        done(shop.add.enqueue(1))
        done(shop.fail.enqueue())
        queue().send({}, task="shop.tasks.nope", results=60)
        drain()
        after = queue().stats().tasks
        acked, dead = [
            [runs.get(name, TaskRuns()) for runs in (after, before)] for name in ("shop.tasks.add", "shop.tasks.fail")
        ]
        self.assertEqual((acked[0].acked - acked[1].acked, dead[0].dead - dead[1].dead), (1, 1))
        self.assertNotIn("shop.tasks.nope", after)

    def test_receiver_that_raises_does_not_undo_the_work(self):
        def fail(**_):
            raise KeyError("receiver")

        signals.task_finished.connect(fail)
        try:
            self.assertEqual(done(shop.add.enqueue(1)).status, STATUS.SUCCESSFUL)
        finally:
            signals.task_finished.disconnect(fail)

    def test_death_without_a_run_is_told(self):
        seen = []

        def note(task_result, **_):
            seen.append((task_result.id, task_result.status, task_result.errors[0].exception_class))

        signals.task_finished.connect(note)
        try:
            sent = queue().send({"args": {}, "kwargs": {}}, task="shop.tasks.add", results=60)
            drain()
        finally:
            signals.task_finished.disconnect(note)
        self.assertEqual([(each[0], each[1]) for each in seen], [(sent.id, STATUS.FAILED)])

    def test_death_of_an_occurrence_is_told(self):
        """Its id does not say its queue, which may have any name."""
        seen = []
        signals.task_finished.connect(note := lambda task_result, **_: seen.append(task_result))
        schedules = queue("timetable", "any").schedules
        schedules.add("soon", "0 0 1 1 *", message=backends["any"].message(shop.fail.using(backend="any"), "why"))
        try:
            occurrence = schedules.run_now("soon")
            Consumer(queue("timetable", "any")).drain()
        finally:
            schedules.remove("soon")
            signals.task_finished.disconnect(note)
        [result] = seen
        self.assertEqual((result.id, result.status, result.args), (occurrence.id, STATUS.FAILED, ["why"]))
        self.assertIs(result.errors[0].exception_class, ValueError)

    def test_schedule_runs_a_task(self):
        backend = backends["default"]
        queue().schedules.add("soon", "0 0 1 1 *", message=backend.message(shop.add, 1, c=3))
        try:
            info = queue().schedules.run_now("soon")
            self.assertEqual(shop.add.get_result(info.id).status, STATUS.READY)
            drain()
            self.assertEqual(shop.add.get_result(info.id).return_value, [1, 1, [], 3, {}])
        finally:
            queue().schedules.remove("soon")


class Queues(Live):
    """One queue object a process."""

    def test_threads_share_it(self):
        found = []
        threads = [threading.Thread(target=lambda: found.append(queue())) for _ in range(8)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        self.assertEqual(len({*map(id, found), id(queue())}), 1)

    def test_fork_keeps_them(self):
        """With their middleware, which the application has added before the web server has forked."""
        sent, task = [], shop.add.using(backend="any", queue_name="forked")  # sent without a database
        queue("forked", "any").middleware.after_send(lambda message, _: sent.append(message.id))
        queue("forked", "any").send("from the parent")
        self.assertTrue(queues._lock.acquire())  # as by another thread
        child = os.fork()
        if child == 0:
            code = 1
            try:
                result = task.enqueue(1)
                code = 0 if sent[1:] == [result.id] and task.get_result(result.id).args == [1] else 2
            finally:
                os._exit(code)
        queues._lock.release()
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        self.assertEqual(len(sent), 1)

    def test_names_that_strangers_give_leave_nothing(self):
        queue("real", "any").send({}, task="shop.tasks.add", id="real:1", results=60)
        options = Options.of({**backends["any"].options, "results": 60})
        with override_settings(TASKS={"any": {**settings.TASKS["any"], "OPTIONS": msgspec.structs.asdict(options)}}):
            before = len(queues._made)
            for number in range(5):
                with self.assertRaises(exceptions.TaskResultDoesNotExist):
                    backends["any"].get_result(f"stranger-{number}:1")
            self.assertEqual(len(queues._made), before)
            for _ in range(2):
                self.assertEqual(backends["any"].get_result("real:1").status, STATUS.READY)
            self.assertEqual(len(queues._made), before + 1)

    def test_command_finds_it(self):
        module, _, name = queues.target("default", "a.b/c").partition(":")
        self.assertNotIn(".", name)
        self.assertIs(getattr(queues, name), queue("a.b/c"))
        self.assertEqual(module, "delayq.django.queues")


class Settings(SimpleTestCase):
    """The system check, which asks no server."""

    def check(self, **options):
        given = {"BACKEND": "delayq.django.DelayqBackend", "QUEUES": options.pop("queues", ["default"])}
        with override_settings(TASKS={"default": {**given, "OPTIONS": options}}):
            return [each.id for each in backends["default"].check()]

    def test_valid_settings(self):
        self.assertEqual(self.check(url="redis://127.0.0.1:1/0", results=dt.timedelta(days=1)), [])
        self.assertEqual([each for each in checks.run_checks() if (each.id or "").startswith("delayq")], [])

    def test_wrong_settings(self):
        self.assertEqual(self.check(uri="redis://"), ["delayq.E001"])
        self.assertEqual(self.check(results=None), ["delayq.E001"])
        self.assertEqual(self.check(url="http://x"), ["delayq.E002"])
        self.assertEqual(self.check(results=-1), ["delayq.E002"])
        self.assertEqual(self.check(max_retries=-1), ["delayq.E002"])
        self.assertEqual(self.check(queues=["a{b}"]), ["delayq.E002"])
        self.assertEqual(self.check(enqueue_on_commit="nope"), ["delayq.E003"])
        self.assertEqual(self.check(enqueue_on_commit=None, outbox=True), ["delayq.E004"])
        self.assertEqual(self.check(outbox=True), [])
        given = {"BACKEND": "delayq.django.DelayqBackend"}
        for url, found in (("redis://a", []), ("redis://b", ["delayq.E006"])):
            others = {
                n: {**given, "OPTIONS": {"outbox": True, "url": u}}
                for n, u in {"default": "redis://a", "x": url}.items()
            }
            with override_settings(TASKS=others):
                self.assertEqual([each.id for each in backends["default"].check()], found)
        with mock.patch.dict(connections.settings["default"], ENGINE="django.db.backends.dummy"):
            self.assertEqual(self.check(), ["delayq.E003"])
            self.assertEqual(self.check(enqueue_on_commit=None), [])
        with self.modify_settings(INSTALLED_APPS={"remove": "delayq.django"}):
            self.assertEqual(self.check(), ["delayq.W001"])

    def test_nothing_connects_at_import(self):
        options = {"url": "redis://127.0.0.1:1/0"}
        with override_settings(TASKS={"default": {"BACKEND": "delayq.django.DelayqBackend", "OPTIONS": options}}):
            tasks.task(shop.add.func)
            shop.add.using(run_after=timezone.now())


class Commands(Live):
    """manage.py delayq, within a process; `tests/django` runs it as a process."""

    def test_call_command(self):
        with self.assertRaises(CommandError):
            call_command("delayq", "show", "default", "nope")
        with self.assertRaisesMessage(CommandError, "unknown backend 'nope'"):
            call_command("delayq", "--backend", "nope", "stats")

    def test_help_of_consume_is_about_queues_and_nothing_else_changes(self):
        variables = dict(os.environ)
        with contextlib.redirect_stdout(io.StringIO()) as said:
            call_command("delayq", "consume", "--help")
        self.assertIn("consume [OPTIONS] [QUEUE[=WEIGHT]]...", said.getvalue())
        self.assertNotIn("MODULE:QUEUE", said.getvalue())
        self.assertNotIn("TARGET", said.getvalue())
        self.assertEqual(dict(os.environ), variables)
        own = cli.get_command(click.Context(cli), "consume")
        self.assertIn("MODULE:QUEUE", own.help)
        self.assertIn("TARGET[=WEIGHT]...", [each.metavar for each in own.params])

    def test_children_import_from_where_this_process_does(self):
        with mock.patch.object(sys, "path", ["/of/pythonpath", "/of/manage.py", *sys.path]):
            path = _path_of_children().split(os.pathsep)
        self.assertEqual(path[:2], ["/of/pythonpath", "/of/manage.py"])
        self.assertNotIn(str(Path(os.__file__).parent), path)


class Dashboard(SimpleTestCase):
    """A browser that leaves ends its request to the dashboard, wherever that is."""

    def left(self, *events, leave):
        """Return whether the dashboard's request ends when a browser leaves, after these events of its answer."""
        began, ended, loop = threading.Event(), threading.Event(), asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever)

        async def app(_scope, _receive, send):
            try:
                for event in events:
                    await send(event)
                began.set()
                await asyncio.Event().wait()
            finally:
                ended.set()

        async def visit():
            request = AsyncRequestFactory().get("/queues/")
            user = SimpleNamespace(is_active=True, is_staff=True, get_username=lambda: "boss")
            request.auser = mock.AsyncMock(return_value=user)
            [pattern], *_ = dashboard.dashboard_urls()
            await leave(asyncio.ensure_future(pattern.callback(request, path="")), began)

        thread.start()
        with mock.patch.object(dashboard._Served, "here", lambda _: (app, loop)):
            asyncio.run(visit())
        has_ended = ended.wait(5)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
        return has_ended

    def test_before_the_answer(self):
        async def leave(view, began):
            await asyncio.to_thread(began.wait)
            view.cancel()
            await asyncio.wait([view])

        self.assertTrue(self.left(leave=leave))
        self.assertTrue(self.left(START, leave=leave))

    def test_before_the_first_part(self):
        async def leave(view, _):
            (await view).close()

        self.assertTrue(self.left(START, {"type": "http.response.body", "more_body": True}, leave=leave))


START = {"type": "http.response.start", "status": 200, "headers": []}


class Framework(SimpleTestCase):
    """Where the tasks framework is missing."""

    def test_remedy_fits_the_version_of_django(self):
        for version, remedy in (((5, 2), "django-tasks>="), ((6, 0), "[django]")):
            missing = dict.fromkeys(("django.tasks", "django_tasks"))
            with mock.patch.object(django, "VERSION", version), mock.patch.dict(sys.modules, missing):
                with self.assertRaisesMessage(ImportError, remedy):
                    runpy.run_path(framework.__file__)


def retrying(task, times):
    fast()
    return task.using(max_retries=times)


def fast():
    """Let retries of the default queue come at once."""
    queue().configure(backoff=backoff.fixed(0))
    return True


async def tasks_in_thread(function):
    from asgiref.sync import sync_to_async

    await sync_to_async(function, thread_sensitive=False)()
