from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True
    operations = [
        migrations.CreateModel(
            "Order",
            [("id", models.BigAutoField(primary_key=True)), ("text", models.CharField(max_length=100))],
        )
    ]
