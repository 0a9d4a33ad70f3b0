"""The settings of a site for the tests; the variables come from `tests.harness.django`."""

import os
import uuid

import django

ON_52 = django.VERSION < (6,)
SECRET_KEY = "for tests"
ALLOWED_HOSTS = ["*"]
USE_TZ = True
TIME_ZONE = "Asia/Kolkata"
ROOT_URLCONF = "urls"
INSTALLED_APPS = [
    "delayq.django",
    *(["django_tasks"] if ON_52 else []),
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "shop",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
if os.environ.get("SITE_POSTGRESQL"):
    DATABASES = {
        alias: {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": name,
            "USER": "postgres",
            "HOST": os.environ["SITE_POSTGRESQL"],
            "TEST": {"MIGRATE": False},  # the tables are made at once
        }
        for alias, name in {"default": "site", "other": "other"}.items()
    }
else:
    DATABASES = {
        alias: {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": os.path.join(os.environ["SITE_FOLDER"], f"{alias}.sqlite3"),
            "OPTIONS": {"init_command": "PRAGMA synchronous=OFF"},
            "TEST": {"NAME": os.path.join(os.environ["SITE_FOLDER"], f"test-{alias}.sqlite3"), "MIGRATE": False},
        }
        for alias in ("default", "other")
    }

OPTIONS = {"url": os.environ["SITE_REDIS"], "prefix": os.environ.get("SITE_PREFIX") or f"test-{uuid.uuid4().hex}"}
BACKEND = "delayq.django.DelayqBackend"
TASKS = {
    "default": {"BACKEND": BACKEND, "QUEUES": ["default", "emails", "a.b/c"], "OPTIONS": OPTIONS},
    "any": {"BACKEND": BACKEND, "QUEUES": [], "OPTIONS": {**OPTIONS, "enqueue_on_commit": None}},
    "outbox": {"BACKEND": BACKEND, "QUEUES": ["default"], "OPTIONS": {**OPTIONS, "outbox": True}},
    "quiet": {
        "BACKEND": BACKEND,
        "QUEUES": ["default"],
        "OPTIONS": {**OPTIONS, "outbox": True, "outbox_notify": False},
    },
    "other": {"BACKEND": BACKEND, "OPTIONS": {**OPTIONS, "enqueue_on_commit": "other"}},
}
LOGGING = {
    "version": 1,
    "handlers": {"null": {"class": "logging.NullHandler"}},
    "loggers": {"django.tasks": {"handlers": ["null"], "propagate": False, "level": "DEBUG"}},
}
