"""Django: a backend of its tasks framework, ``manage.py delayq``, and the dashboard behind staff login.

    INSTALLED_APPS += ["delayq.django"]
    TASKS = {"default": {"BACKEND": "delayq.django.DelayqBackend", "OPTIONS": {"url": "redis://localhost:6379/0"}}}

It needs Django 6 (the extra ``django``), or Django 5.2 with the package django-tasks.
"""

from delayq.django.backend import DelayqBackend
from delayq.django.dashboard import dashboard_urls
from delayq.django.task import DelayqTask

__all__ = ["DelayqBackend", "DelayqTask", "dashboard_urls"]
