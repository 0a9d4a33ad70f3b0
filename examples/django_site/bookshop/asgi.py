"""For uvicorn: ``uvicorn bookshop.asgi:application``."""

import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "bookshop.settings")
application = get_asgi_application()
