"""Django's framework of tasks, or that of django-tasks, for the tests."""

try:
    import django.tasks as tasks
    from django.tasks import base, exceptions, signals
    from django.tasks.exceptions import InvalidTask
except ImportError:
    import django_tasks as tasks
    from django_tasks import base, exceptions, signals
    from django_tasks.exceptions import InvalidTaskError as InvalidTask

__all__ = ["InvalidTask", "base", "exceptions", "signals", "tasks"]
