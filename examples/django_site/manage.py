"""A bookshop with Django: pages that enqueue tasks, a schedule, and the dashboard.

pip install '.[django]'            # in the folder of a checkout; then here:
python manage.py migrate
python manage.py createsuperuser
python manage.py schedule          # the nightly report; at each deployment
python manage.py delayq consume    # in another terminal, or as a service
python manage.py runserver         # http://localhost:8000/, and /queues/ for staff
python manage.py test
"""

import os
import sys

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "bookshop.settings")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)
