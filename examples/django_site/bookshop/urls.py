"""The pages."""

from django.contrib import admin
from django.urls import path
from orders import views

from delayq.django import dashboard_urls

urlpatterns = [
    path("", views.index, name="index"),
    path("orders/<int:number>", views.order, name="order"),
    path("admin/", admin.site.urls),
    path("queues/", dashboard_urls()),
]
