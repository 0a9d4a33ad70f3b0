"""The app ``delayq.django``."""

from django.apps import AppConfig


class DelayqConfig(AppConfig):
    """Brings the command ``manage.py delayq``."""

    name = "delayq.django"
    label = "delayq"
