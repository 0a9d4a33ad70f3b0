"""The tests: with the queues in memory, and a clock that they move."""

from datetime import timedelta

from django.core import mail
from django.core.management import call_command
from django.test import TestCase

from delayq.testing import in_memory
from orders.models import Order
from orders.tasks import report, send_receipt


class OrderTest(TestCase):
    """An order, from the form to the receipt."""

    def setUp(self):
        backend = report.get_backend()
        self.emails, self.reports = backend.queue("emails"), backend.queue("default")
        self.clock = self.enterContext(in_memory(self.emails, self.reports))

    def order(self):
        """Order a book, and return the answer."""
        with self.captureOnCommitCallbacks(execute=True):
            return self.client.post("/", {"address": "ann@example.org", "book": "Emma"})

    def test_receipt_is_sent(self):
        page = self.order().url
        self.assertContains(self.client.get(page), "receipt Ready")
        self.clock.run_due()
        self.assertContains(self.client.get(page), "receipt Successful")
        self.assertEqual([each.to for each in mail.outbox], [["ann@example.org"]])

    def test_nothing_is_sent_without_an_order(self):
        with self.assertRaises(KeyError), self.captureOnCommitCallbacks(execute=True):
            self.client.post("/", {"address": "ann@example.org"})
        self.assertEqual(self.emails.stats().sent, 0)

    def test_customer_is_asked_after_two_weeks(self):
        self.order()
        self.clock.run_for(days=13)
        self.assertEqual(self.emails.stats().acked, 1)
        self.clock.run_for(days=2)
        self.assertEqual(self.emails.stats().acked, 2)

    def test_report_runs_each_night(self):
        Order.objects.create(address="ann@example.org", book="Emma")
        call_command("schedule")
        call_command("schedule")
        self.clock.run_for(timedelta(days=3))
        self.assertEqual(self.reports.stats().acked, 3)

    def test_receipt_as_a_plain_call(self):
        number = Order.objects.create(address="ann@example.org", book="Emma").pk
        self.assertEqual(send_receipt.call(number), "ann@example.org")

    def test_dashboard_is_for_staff(self):
        self.assertRedirects(self.client.get("/queues/"), "/admin/login/?next=/queues/")
