"""A page that takes orders, and one that shows what became of the receipt."""

from datetime import timedelta

from django.db import transaction
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone

from orders.models import Order
from orders.tasks import ask_for_review, send_receipt


@transaction.atomic
def index(request):
    """Take an order: both tasks are sent when the order is committed, or not at all."""
    if request.method != "POST":
        return render(request, "orders/index.html")
    order = Order.objects.create(address=request.POST["address"], book=request.POST["book"])
    order.receipt = send_receipt.enqueue(order.pk).id
    order.save()
    ask_for_review.using(run_after=timezone.now() + timedelta(days=14)).enqueue(order.pk)
    return redirect("order", order.pk)


def order(request, number):
    """Show an order and the state of its receipt."""
    found = get_object_or_404(Order, pk=number)
    return render(request, "orders/order.html", {"order": found, "receipt": send_receipt.get_result(found.receipt)})
