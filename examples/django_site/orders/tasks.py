"""The tasks."""

try:
    from django.tasks import task
except ImportError:  # Django 5.2
    from django_tasks import task

from django.core.mail import send_mail

from orders.models import Order


@task(queue_name="emails")
def send_receipt(number):
    """Send the receipt of an order; the order is there, since the task was sent after the commit."""
    order = Order.objects.get(pk=number)
    send_mail("Your order", f"Thank you for ordering {order.book}.", None, [order.address])
    return order.address


@task(queue_name="emails", takes_context=True)
async def ask_for_review(context, number):
    """Ask what the customer thinks of the book."""
    order = await Order.objects.aget(pk=number)
    if not order.is_reviewed:
        print("ask", order.address, "in attempt", context.attempt)


@task
def report():
    """Count the orders."""
    return {"orders": Order.objects.count()}
