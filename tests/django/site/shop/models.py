from django.db import models


class Order(models.Model):
    """An order."""

    text = models.CharField(max_length=100)
