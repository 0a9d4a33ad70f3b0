"""The orders."""

from django.db import models


class Order(models.Model):
    """An order of a book."""

    address = models.EmailField()
    book = models.CharField(max_length=200)
    receipt = models.CharField(max_length=100, blank=True)  # the id of the result of `send_receipt`
    is_reviewed = models.BooleanField(default=False)
