"""The settings. Without DELAYQ_URL, delayq runs a server of its own in ./.delayq, as Django does with SQLite."""

import os
from pathlib import Path

import django

FOLDER = Path(os.environ.get("BOOKSHOP_FOLDER") or Path(__file__).parents[1])
SECRET_KEY = os.environ.get("SECRET_KEY", "only for this example")
DEBUG = True
ALLOWED_HOSTS = ["localhost", "127.0.0.1", "testserver"]
ROOT_URLCONF = "bookshop.urls"
ASGI_APPLICATION = "bookshop.asgi.application"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": FOLDER / "db.sqlite3"}}
STATIC_URL = "static/"
USE_TZ = True

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "orders",
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

INSTALLED_APPS += ["delayq.django"]
if django.VERSION < (6,):
    INSTALLED_APPS += ["django_tasks"]
TASKS = {
    "default": {
        "BACKEND": "delayq.django.DelayqBackend",
        "QUEUES": ["default", "emails"],
        "OPTIONS": {"url": os.environ.get("DELAYQ_URL"), "max_retries": 3},
    }
}
