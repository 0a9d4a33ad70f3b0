from django.contrib import admin
from django.urls import path

from delayq.django import dashboard_urls

urlpatterns = [path("admin/", admin.site.urls), path("a/queues/", dashboard_urls(redact=["secret"]))]
