"""Django's own tests of its framework, from its source distribution, with this backend in place of Django's.

`tasks` is the package of these tests. A test that holds only for the backend that it is written for is left out, with
the reason.
"""

from django.tasks import task_backends
from django.test import override_settings
from tasks import test_custom_backend, test_dummy_backend, test_immediate_backend, test_tasks

from delayq import Consumer
from delayq.django import DelayqBackend

OPTIONS = {**task_backends["default"].options, "enqueue_on_commit": None}  # these tests have no database
NAME = f"{__name__}.{{}}"


class Waiting(DelayqBackend):
    """The backend, with what the tests ask of Django's dummy one."""

    @property
    def results(self):
        """The results of the tasks that wait, in order."""
        return [self.get_result(each.id) for each in self.queue("default").peek()]

    def clear(self):
        """Forget all tasks."""
        self.queue("default").purge()


class Immediate(DelayqBackend):
    """The backend, with a consumer that runs each task at once."""

    def enqueue(self, task, args, kwargs):
        result = super().enqueue(task, args, kwargs)
        Consumer(self.queue(task.queue_name)).drain()
        result.refresh()
        return result


def without(case, **reasons):
    """Return a class of tests without some of them; all must exist."""
    missing = [name for name in reasons if not hasattr(case, name)]
    assert not missing, missing
    return type(case.__name__, (case,), {**dict.fromkeys(reasons), "__module__": __name__})


def settings(default, queues=(), **others):
    return override_settings(
        TASKS={
            "default": {"BACKEND": NAME.format(default), "QUEUES": list(queues), "OPTIONS": OPTIONS},
            **others,
        },
        USE_TZ=True,
    )


PRIORITY = "this backend has no priorities"
OWN = "says what the other backend is"

test_tasks.DummyBackend = Waiting
test_tasks.ImmediateBackend = Immediate
test_dummy_backend.DummyBackend = Waiting

TaskTestCase = settings(
    "Waiting",
    ["default", "queue_1"],
    immediate={"BACKEND": NAME.format("Immediate"), "QUEUES": [], "OPTIONS": OPTIONS},
    missing={"BACKEND": "does.not.exist"},
)(
    without(
        test_tasks.TaskTestCase,
        test_using_priority=PRIORITY,
        test_chained_using=PRIORITY,
        test_invalid_priority=PRIORITY,
    )
)
DummyBackendTestCase = settings("Waiting")(
    without(
        test_dummy_backend.DummyBackendTestCase,
        test_using_correct_backend=OWN,
        test_refresh_result="changes a result in the other backend's memory",
        test_refresh_result_async="changes a result in the other backend's memory",
        test_validate_on_enqueue=OWN,
        test_validate_on_aenqueue=OWN,
    )
)
ImmediateBackendTestCase = settings("Immediate")(
    without(
        test_immediate_backend.ImmediateBackendTestCase,
        test_using_correct_backend=OWN,
        test_throws_keyboard_interrupt="a consumer's thread cannot be interrupted: it is a failure",
        test_cannot_get_result="this backend can",
        test_cannot_refresh_result="this backend can",
        test_cannot_pass_run_after="this backend can",
        test_validate_on_enqueue=OWN,
        test_validate_on_aenqueue=OWN,
    )
)
CustomBackendTestCase = test_custom_backend.CustomBackendTestCase
CustomTaskTestCase = test_custom_backend.CustomTaskTestCase
