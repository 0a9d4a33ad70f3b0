"""The tasks framework: Django's own, or the package django-tasks for Django 5.2. Other modules take it from here."""

import django

from delayq.model.extras import install

try:
    from django.tasks import TaskContext, TaskResult, TaskResultStatus, signals, task_backends
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import Task, TaskError
    from django.tasks.exceptions import InvalidTask, TaskResultDoesNotExist
except ImportError:
    try:
        from django_tasks import TaskContext, TaskResult, TaskResultStatus, signals, task_backends
        from django_tasks.backends.base import BaseTaskBackend
        from django_tasks.base import Task, TaskError
        from django_tasks.exceptions import InvalidTaskError as InvalidTask
        from django_tasks.exceptions import TaskResultDoesNotExist
    except ImportError as error:
        remedy = "pip install 'django-tasks>=0.12'" if django.VERSION < (6,) else install("django")
        raise ImportError(f"delayq.django needs Django 6, or Django 5.2 with django-tasks: {remedy}") from error

__all__ = [
    "BaseTaskBackend",
    "InvalidTask",
    "Task",
    "TaskContext",
    "TaskError",
    "TaskResult",
    "TaskResultDoesNotExist",
    "TaskResultStatus",
    "signals",
    "task_backends",
]
