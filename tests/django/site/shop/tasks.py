"""The tasks of the site; NOTES is what they did in this process."""

import os
import time
from pathlib import Path

from asgiref.sync import sync_to_async
from django.db import connection, connections

from shop.framework import tasks
from shop.models import Order

task = tasks.task
NOTES = []


def not_a_task():
    NOTES.append("not a task")


@task
def add(a, /, b=1, *rest, c=2, **more):
    return [a, b, list(rest), c, more]


@task(queue_name="emails")
async def mail(address):
    count = await sync_to_async(Order.objects.count)()
    return f"{address} {count}"


@task
def fail(text="no"):
    raise ValueError(text)


@task
def leave():
    raise SystemExit(3)


@task
def unserializable():
    NOTES.append("ran")
    return object()


@task
def not_a_number():
    return float("nan")


@task
def as_bytes():
    return b"text"


@task(takes_context=True)
def attempts(context, fails=0):
    NOTES.append((context.attempt, list(context.task_result.worker_ids)))
    if context.attempt <= fails:
        raise ConnectionError(f"attempt {context.attempt}")
    return context.task_result.id


@task
def use_database():
    connection.ensure_connection()
    NOTES.append(connection.queries_log.__len__())
    Order.objects.create(text="used")
    return connections["default"].connection is not None


@task
def wait(path):
    while not Path(path).exists():
        time.sleep(0.01)
    return os.getpid()


@task
def die():
    os._exit(1)


@task
def order_exists(number):
    return Order.objects.filter(pk=number).exists()
