"""``manage.py schedule``: store the schedules, at each deployment; an identical one is left as it is."""

from django.core.management.base import BaseCommand

from orders.tasks import report


class Command(BaseCommand):
    """Stores the schedules."""

    help = "Store the schedules of the bookshop."

    def handle(self, **options):
        """Run the report each night."""
        backend = report.get_backend()
        backend.queue("default").schedules.add("report", "0 3 * * *", message=backend.message(report))
