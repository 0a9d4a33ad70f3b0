"""The table of orders."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """Creates the table."""

    initial = True
    operations = [
        migrations.CreateModel(
            "Order",
            [
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("address", models.EmailField(max_length=254)),
                ("book", models.CharField(max_length=200)),
                ("receipt", models.CharField(max_length=100, blank=True)),
                ("is_reviewed", models.BooleanField(default=False)),
            ],
        )
    ]
